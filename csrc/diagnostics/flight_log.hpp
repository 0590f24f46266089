// The last N operations of the process, of all groups: what `mpi-gdr diagnose` and torch's flight-recorder
// analyzer compare between ranks. docs/errors-and-faults.md describes the file that is made of it.
//
// Threads. record() and forget() are called by the thread that issues the operation, started() and chosen()
// by the holder of the progress role, ended() by the thread that ends it, snapshot() by any thread at any
// time. A slot is guarded by a lock of its own that is held for a few copies of memory, never across a call
// of the transport: a thread that is stuck in the library does not keep others from reading. An operation
// whose slot has been taken by a later one is no longer tracked.
//
// Cost: slots are made up front and nothing is allocated unless an operation fails.
#pragma once

#include <algorithm>
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

// Since the epoch of its clock.
template <typename Time>
std::int64_t to_nanoseconds(Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// Text of fixed capacity; a longer one is cut.
template <std::size_t N>
class ShortText {
 public:
  ShortText() {}
  ShortText(const ShortText& other) { *this = other.view(); }
  ShortText& operator=(const ShortText& other) {
    *this = other.view();
    return *this;
  }
  void operator=(std::string_view text) {
    length_ = static_cast<std::uint16_t>(std::min(text.size(), N));
    text.copy(data_, length_);
  }
  std::string_view view() const { return {data_, length_}; }

 private:
  std::uint16_t length_ = 0;
  char data_[N];
};

struct FlightEntry {
  static constexpr std::uint64_t kUnused = ~std::uint64_t{0};
  std::uint64_t id = kUnused;  // counts the entries of the process
  std::uint64_t record = 0;    // counts its collectives
  std::uint32_t group = 0;     // of FlightLog::add_group()
  Channel channel = Channel::Collective;
  ShortText<40> name;        // "all_reduce"
  ShortText<40> torch_name;  // as torch's profiler and its analyzer call it: "_all_gather_base"
  CallDetail detail;         // "float32[10] op=sum"
  ShortText<24> algorithm;
  std::uint64_t sequence = 0;   // first one of the channel; of a message: how many went before it to or from
                                // the same peer with the same tag
  std::uint64_t sequences = 0;  // how many; 0 for a message
  std::uint64_t bytes = 0;      // of this rank's contribution
  TensorShapes inputs, outputs;
  // Of a message, else unused. Ranks of the group.
  bool send = false;
  int peer = 0, tag = 0;
  // Nanoseconds since the epoch; 0: not yet.
  std::int64_t created = 0, started = 0, ended = 0;
  std::int64_t timeout = 0;  // ns
  bool failed = false;
  std::string error;
  std::vector<int> pending;  // ranks of the group that it waited for when it failed

  // The first call counts. `waited_for` may be null: not known.
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

  // Its name is made unique within the process by "#2", "#3", ...
  std::uint32_t add_group(GroupInfo group);
  void describe(std::uint32_t group, const std::string& description);

  // `fill(entry, i)` is given `count` fresh entries of this channel, each under the lock of its slot; it must
  // not block. Their ids count up from the one that is returned.
  template <typename Fill>
  std::uint64_t record(Channel channel, std::uint32_t count, Fill&& fill) {
    const bool collective = channel != Channel::PointToPoint;
    const std::uint64_t first = next_.fetch_add(count, std::memory_order_relaxed);
    const std::uint64_t record = collective ? collectives_.fetch_add(count, std::memory_order_relaxed) : 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      Slot& slot = slots_[(first + i) % capacity_];
      const Lock lock(slot);
      const std::uint64_t there = slot.entry.id;
      if (there != FlightEntry::kUnused && there > first + i) continue;  // overtaken by a turn of the ring
      std::destroy_at(&slot.entry);
      ::new (static_cast<void*>(&slot.entry)) FlightEntry{};  // which leaves its texts unset
      slot.entry.id = first + i;
      slot.entry.record = record + (collective ? i : 0);
      slot.entry.channel = channel;
      fill(slot.entry, i);
    }
    return first;
  }
  // `change(entry)` under the lock of its slot, unless a later one has that; the id kUnused removes it.
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

  // Of this log's clock: nanoseconds since the epoch, without steps backwards.
  std::int64_t nanoseconds(Clock::time_point t) const;

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
