#include "transport/ipc/device_segments.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"

namespace mpi_gdr::ipc {
namespace {

static_assert(DeviceArena::kMaxSegments == 64, "a bit of a word each");

std::uint64_t bit(int segment) { return std::uint64_t{1} << segment; }

}  // namespace

std::size_t DeviceSegments::bytes(int size, int slots) {
  static_assert(sizeof(Entry) * kMax % sizeof(Line) == 0 && kMax * sizeof(std::uint64_t) % sizeof(Line) == 0);
  const auto ranks = static_cast<std::size_t>(size);
  return (2 + ranks + static_cast<std::size_t>(slots) * kKinds) * sizeof(Line) + kMax * sizeof(Entry) +
         ranks * kMax * sizeof(std::uint64_t);
}

DeviceSegments::DeviceSegments(Device& device, int rank, int size, int slots, std::vector<int> members)
    : device_(device),
      arena_(DeviceArena::of(device)),
      rank_(rank),
      size_(size),
      slots_(slots),
      members_(std::move(members)),
      parts_(static_cast<std::size_t>(size)),
      seen_(static_cast<std::size_t>(size)) {}

void DeviceSegments::attach(int r, std::byte* memory) {
  Part& part = parts_[static_cast<std::size_t>(r)];
  const auto lines = reinterpret_cast<Line*>(memory);
  part.news = lines;
  part.count = lines + 1;
  part.mapped = lines + 2;
  part.shown = part.mapped + size_;
  part.entries = reinterpret_cast<Entry*>(part.shown + slots_ * kKinds);
  part.bases = reinterpret_cast<std::uint64_t*>(part.entries + kMax);
  if (r == rank_) own_bases_ = part.bases;
}

void DeviceSegments::publish() {
  const int there = arena_.segments();
  if (there == published_) return;
  const Part& own = parts_[static_cast<std::size_t>(rank_)];
  for (; published_ < there; ++published_) {
    const DeviceArena::Segment& segment = arena_.segment(published_);
    Entry& entry = own.entries[published_];
    entry.bytes = segment.bytes;
    // A handle that is too long cannot be shared.
    entry.handle_bytes = segment.handle.size() <= entry.handle.size() ? segment.handle.size() : 0;
    std::memcpy(entry.handle.data(), segment.handle.data(), entry.handle_bytes);
    std::atomic_ref(own_bases_[rank_ * kMax + published_])
        .store(reinterpret_cast<std::uintptr_t>(segment.base), std::memory_order_release);
  }
  own.count->value.store(static_cast<std::uint64_t>(published_), std::memory_order_release);
  for (int r = 0; r < size_; ++r)
    if (const Part& part = parts_[static_cast<std::size_t>(r)]; r != rank_ && part.news)
      part.news->value.fetch_add(1, std::memory_order_release);
}

void DeviceSegments::map(int r, std::uint64_t use) {
  const Part& theirs = parts_[static_cast<std::size_t>(r)];
  int& seen = seen_[static_cast<std::size_t>(r)];
  const int there =
      static_cast<int>(std::min<std::uint64_t>(theirs.count->value.load(std::memory_order_acquire), kMax));
  for (; seen < there; ++seen) {
    const Entry& entry = theirs.entries[seen];
    const std::uint64_t handle_bytes = entry.handle_bytes;  // read once: its owner may write it
    if (handle_bytes == 0 || handle_bytes > entry.handle.size()) continue;
    try {
      void* const base = device_.import_memory({entry.handle.data(), handle_bytes});
      std::atomic_ref(own_bases_[r * kMax + seen])
          .store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
    } catch (const Error& error) {
      if (!failed_before_)
        log(LogLevel::Warn, "INIT", "group memory of rank ",
            members_.empty() ? r : members_[static_cast<std::size_t>(r)],
            " on its device cannot be mapped, collectives on tensors there use staging memory: ",
            error.what());
      failed_before_ = true;
      continue;
    }
    mapped_any_ = true;
    // No other rank writes this line. An owner that sees the bit may send this rank's device there.
    Line& line = theirs.mapped[rank_];
    line.since.store(use, std::memory_order_relaxed);
    line.value.store(line.value.load(std::memory_order_relaxed) | bit(seen), std::memory_order_release);
  }
}

void DeviceSegments::refresh(std::uint64_t use) {
  publish();
  const std::uint64_t news =
      parts_[static_cast<std::size_t>(rank_)].news->value.load(std::memory_order_acquire);
  if (news == last_news_) return;
  last_news_ = news;  // before map(), so that a later change is not missed
  for (int r = 0; r < size_; ++r)
    if (r != rank_) map(r, use);
}

void DeviceSegments::release(int r) {
  for (int k = 0; r != rank_ && k < seen_[static_cast<std::size_t>(r)]; ++k) {
    std::uint64_t& base = own_bases_[r * kMax + k];
    if (base) device_.release_imported(reinterpret_cast<void*>(base));
    base = 0;
  }
}

std::optional<DeviceArena::Location> DeviceSegments::find(const void* memory, std::uint64_t use) const {
  const auto found = arena_.find(memory, 0);
  if (!found || found->segment >= published_) return std::nullopt;
  const std::uint64_t wanted = bit(found->segment);
  if (!(everywhere_ & wanted)) {
    const Part& own = parts_[static_cast<std::size_t>(rank_)];
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      // A later mapping may have raised `since`: then this segment is found in a later use.
      if (!(own.mapped[r].value.load(std::memory_order_acquire) & wanted) ||
          own.mapped[r].since.load(std::memory_order_relaxed) > use)
        return std::nullopt;
    }
    everywhere_ |= wanted;
  }
  return found;
}

}  // namespace mpi_gdr::ipc
