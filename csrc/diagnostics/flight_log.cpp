#include "diagnostics/flight_log.hpp"

#include <algorithm>

namespace mpi_gdr {

FlightLog::FlightLog(std::size_t capacity)
    : capacity_(std::max<std::size_t>(capacity, 1)),
      offset_(to_nanoseconds(std::chrono::system_clock::now()) - to_nanoseconds(Clock::now())),
      slots_(new Slot[capacity_]) {}

std::uint32_t FlightLog::add_group(GroupInfo group) {
  std::lock_guard lock(groups_mutex_);
  const std::string name = group.name;
  for (int i = 2; std::ranges::find(groups_, group.name, &GroupInfo::name) != groups_.end(); ++i)
    group.name = name + '#' + std::to_string(i);
  groups_.push_back(std::move(group));
  return static_cast<std::uint32_t>(groups_.size() - 1);
}

void FlightLog::describe(std::uint32_t group, const std::string& description) {
  std::lock_guard lock(groups_mutex_);
  groups_.at(group).description = description;
}

FlightLog::Snapshot FlightLog::snapshot() const {
  Snapshot shot;
  shot.entries.reserve(std::min<std::uint64_t>(capacity_, next_.load(std::memory_order_relaxed)));
  for (std::size_t i = 0; i < capacity_; ++i) {
    const Slot& slot = slots_[i];
    const Lock lock(slot);
    if (slot.entry.id != FlightEntry::kUnused) shot.entries.push_back(slot.entry);
  }
  std::ranges::sort(shot.entries, {}, &FlightEntry::id);
  std::lock_guard lock(groups_mutex_);
  shot.groups = groups_;
  return shot;
}

}  // namespace mpi_gdr
