#include "transport/ipc/device_segments.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"

namespace mpi_gdr::ipc {
namespace {

static_assert(DeviceSegments::kMax == 64, "a bit of a word each");

std::uint64_t bit(int segment) { return std::uint64_t{1} << segment; }

// Atomic, because the device reads it at any time.
void set_base(std::uint64_t& base, void* memory) {
  std::atomic_ref(base).store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_release);
}

}  // namespace

DeviceSegments::DeviceSegments(Device& device, const NodeFlags& node, std::vector<Part*> parts)
    : device_(device),
      arena_(DeviceArena::of(device)),
      node_(node),
      parts_(std::move(parts)),
      seen_(parts_.size()) {}

void DeviceSegments::publish() {
  const int there = parts_.empty() ? 0 : arena_.segments();
  if (there == published_) return;
  for (; published_ < there; ++published_) {
    const DeviceArena::Segment& segment = arena_.segment(published_);
    own().entries[published_].set(segment.handle);
    set_base(own().bases[node_.rank()][published_], segment.base);
  }
  own().count.value.store(static_cast<std::uint64_t>(published_), std::memory_order_release);
  node_.each_peer([&](int r) { part(r).news.value.fetch_add(1, std::memory_order_release); });
}

void DeviceSegments::map(int r, std::uint64_t use) {
  Part& theirs = part(r);
  int& seen = seen_[static_cast<std::size_t>(r)];
  const int there =
      static_cast<int>(std::min<std::uint64_t>(theirs.count.value.load(std::memory_order_acquire), kMax));
  for (; seen < there; ++seen) {
    const std::string handle = theirs.entries[seen].get();
    if (handle.empty()) continue;
    try {
      set_base(own().bases[r][seen], device_.import_memory(handle));
    } catch (const Error& error) {
      if (!failed_before_)
        log(LogLevel::Warn, "INIT", "group memory of rank ", node_.member(r),
            " on its device cannot be mapped, collectives on tensors there use staging memory: ",
            error.what());
      failed_before_ = true;
      continue;
    }
    mapped_any_ = true;
    // No other rank writes this line. An owner that sees the bit may send this rank's device there.
    Line& line = theirs.mapped[node_.rank()];
    line.since.store(use, std::memory_order_relaxed);
    line.value.store(line.value.load(std::memory_order_relaxed) | bit(seen), std::memory_order_release);
  }
}

void DeviceSegments::refresh(std::uint64_t use) {
  publish();
  const std::uint64_t news = parts_.empty() ? last_news_ : own().news.value.load(std::memory_order_acquire);
  if (news == last_news_) return;
  last_news_ = news;  // before map(), so that a later change is not missed
  node_.each_peer([&](int r) { map(r, use); });
}

void DeviceSegments::release(int r) {
  for (int k = 0; !parts_.empty() && k < seen_[static_cast<std::size_t>(r)]; ++k) {
    std::uint64_t& base = own().bases[r][k];
    if (base) device_.release_imported(reinterpret_cast<void*>(base));
    base = 0;
  }
}

std::optional<DeviceArena::Location> DeviceSegments::find(const void* memory, std::uint64_t use) const {
  const auto found = arena_.find(memory, 0);
  if (!found || found->segment >= published_) return std::nullopt;
  const std::uint64_t wanted = bit(found->segment);
  bool everywhere = true;
  if (!(everywhere_ & wanted)) {
    node_.each_peer([&](int r) {
      // A later mapping may have raised `since`: then this segment is found in a later use.
      const Line& line = own().mapped[r];
      everywhere &= (line.value.load(std::memory_order_acquire) & wanted) &&
                    line.since.load(std::memory_order_relaxed) <= use;
    });
    if (everywhere) everywhere_ |= wanted;
  }
  return everywhere ? found : std::nullopt;
}

}  // namespace mpi_gdr::ipc
