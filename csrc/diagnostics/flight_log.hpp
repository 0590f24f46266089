// The last N operations of the process (docs/errors-and-faults.md). Thread-safe: a slot's lock is never held
// across a transport call, so a thread stuck in MPI does not block readers. Operations whose slot was reused
// are not tracked. Slots are allocated up front; records allocate only for CallDetail::text and errors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/call_detail.hpp"
#include "common/tensor_shapes.hpp"
#include "engine/observer.hpp"

namespace mpi_gdr {

template <typename Time>
std::int64_t to_nanoseconds(Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

struct FlightEntry {
  static constexpr std::uint64_t kUnused = ~std::uint64_t{0};
  std::uint64_t id = kUnused;  // index among the process's entries
  std::uint64_t record = 0;    // index among the process's collectives; 0 for a message
  std::uint32_t group = 0;     // returned by FlightLog::add_group()
  Channel channel = Channel::Collective;
  // These texts live as long as the process.
  std::string_view name;        // "all_reduce"
  std::string_view torch_name;  // in torch's profiler and analyzer: "_all_gather_base"
  CallDetail detail;            // "float32[10] op=sum"
  std::string_view algorithm;
  // The first sequence number that a collective takes in its channel. For a message: the number of earlier
  // messages in the same direction with the same peer and tag.
  std::uint64_t sequence = 0;
  std::uint64_t sequences = 0;  // sequence numbers that a collective takes; 0 for a message
  std::uint64_t bytes = 0;      // of this rank's contribution
  TensorShapes inputs, outputs;
  // For messages only; `peer` is a rank of the group.
  bool send = false;
  int peer = 0, tag = 0;
  // Nanoseconds since the epoch; 0: not yet.
  std::int64_t created = 0, started = 0, ended = 0;
  std::int64_t timeout = 0;  // ns
  bool failed = false;
  std::string error;
  std::vector<int> pending;  // ranks of the group that a failed operation waited for

  // Later calls are ignored. `waited_for` is null if the pending ranks are unknown.
  void fail(std::int64_t now, const std::string& why, const std::vector<int>* waited_for) {
    if (failed) return;
    failed = true;
    ended = now;
    error = why;
    if (waited_for) pending = *waited_for;
  }
};

class FlightLog {
 public:
  explicit FlightLog(std::size_t capacity);  // >= 1

  // Makes the name unique by appending "#2", "#3", ...
  std::uint32_t add_group(GroupInfo group);
  void describe(std::uint32_t group, const std::string& description);

  // Calls `fill(entry, i)` for each new entry under its slot's lock; `fill` must not block. Returns the first
  // id.
  template <typename Fill>
  std::uint64_t record(Channel channel, std::uint32_t count, Fill&& fill) {
    const bool collective = channel != Channel::PointToPoint;
    const std::uint64_t first = next_.fetch_add(count, std::memory_order_relaxed);
    const std::uint64_t record = collective ? collectives_.fetch_add(count, std::memory_order_relaxed) : 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      Slot& slot = slots_[(first + i) % capacity_];
      const Lock lock(slot);
      const std::uint64_t there = slot.entry.id;
      if (there != FlightEntry::kUnused && there > first + i) continue;  // a newer entry has the slot
      std::destroy_at(&slot.entry);
      ::new (static_cast<void*>(&slot.entry)) FlightEntry{};  // does not clear the bytes of TensorShapes
      slot.entry.id = first + i;
      slot.entry.record = record + (collective ? i : 0);
      slot.entry.channel = channel;
      fill(slot.entry, i);
    }
    return first;
  }
  // Calls `change(entry)` under its slot's lock, unless the slot was reused. To remove the entry, `change`
  // sets its id to kUnused.
  template <typename Change>
  void change(std::uint64_t id, Change&& change) {
    Slot& slot = slots_[id % capacity_];
    const Lock lock(slot);
    if (slot.entry.id == id) change(slot.entry);
  }

  struct Snapshot {
    std::vector<GroupInfo> groups;
    std::vector<FlightEntry> entries;  // by id
  };
  Snapshot snapshot() const;

  // Monotonic nanoseconds since the epoch.
  std::int64_t nanoseconds(Clock::time_point t) const { return to_nanoseconds(t) + offset_; }

 private:
  struct Slot {
    mutable std::atomic<bool> locked{false};
    FlightEntry entry;
  };
  class Lock {
   public:
    explicit Lock(const Slot& slot) : slot_(slot) {
      while (slot_.locked.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    ~Lock() { slot_.locked.store(false, std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const Slot& slot_;
  };

  const std::size_t capacity_;
  const std::int64_t offset_;  // from the steady clock to the epoch, ns
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<std::uint64_t> next_{0}, collectives_{0};
  mutable std::mutex groups_mutex_;
  std::vector<GroupInfo> groups_;
};

}  // namespace mpi_gdr
