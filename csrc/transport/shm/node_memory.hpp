// Memory shared by a group's ranks on one node, and access to their other memory. Ranks: in the group.
//
// Each rank owns a segment (a memfd: only this user's processes can open it, and it is freed with its last
// mapping) and maps the others' through /proc/PID/fd. A segment holds slots (flags, this rank's buffer
// addresses, staging memory), an area for devices (transport/ipc) and one for messages (ring.hpp). An
// operation uses the slot of its number, equal on all ranks. Group memory (arena.hpp) is mapped too; other
// memory is accessed by process_vm_readv and _writev ("CMA") where the kernel allows it.
//
// Flags are growing 64-bit counters with one writer each, stored with release and read with acquire order.
// Those of a slot have the generation in their upper bits, so that the slot is reused without a reset.
//
// Threads: create() blocks; all else is lock-free. One thread at a time uses the slots of a channel.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/call_record.hpp"
#include "common/memory_file.hpp"
#include "common/reach.hpp"
#include "common/staging.hpp"
#include "transport/shm/arena.hpp"

namespace mpi_gdr::shm {

inline constexpr std::size_t kStagingBytes = kHostStagingBytes;  // per slot
// Per channel. A use begins when all ranks have ended the use kSlots before, and all earlier ones.
inline constexpr int kSlots = 8;
inline constexpr int kSlotChannels = 2;  // Collective, Accelerator
inline constexpr int kSlotLanes = 16;

// A rank's uses of the slots of a channel.
struct alignas(64) SlotUses {
  std::atomic<std::uint64_t> ended;     // it has ended all uses below this number; one writer
  std::atomic<std::uint32_t> sleepers;  // of other ranks (doorbell.hpp); many writers
};

// A rank's calls that choose a schedule (execution/rivals.hpp), by number.
struct alignas(64) RivalWords {
  std::array<std::uint64_t, 2 * kSlots> times, decisions;
};

// One writer. A short operation reads only the first cache line; aligned to the pair that processors fetch.
struct alignas(128) Slot {
  // generation << kReachBits | kMappedBit | kCopiedBit. Storing it releases the members below.
  std::atomic<std::uint64_t> begun;
  std::uint64_t input = 0, output = 0;  // addresses in the owner's process
  // CallRecord::history of the last two uses, by the parity of their generations.
  std::uint64_t history[2] = {};
  std::atomic<std::uint64_t> notices[kSlotLanes];  // generation << 32 | Signals so far
  std::atomic<std::uint32_t> sleepers;  // of other ranks, on one of these (doorbell.hpp); many writers
};

inline constexpr std::uint64_t kMappedBit = 1;  // all accessible buffers are in memory that the others map
inline constexpr std::uint64_t kCopiedBit = 2;  // the kernel can copy them
inline constexpr int kReachBits = 2;

class Segment {
 public:
  // `arena`: others may map it; null: none. `device_bytes`: whole pages, equal on all ranks. Throws
  // Error(System).
  explicit Segment(const Arena* arena = nullptr, std::size_t message_bytes = 0, std::size_t device_bytes = 0);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  // For create() on the other ranks.
  std::string ticket() const;

 private:
  friend class NodeMemory;
  std::size_t bytes() const;
  const std::uint64_t nonce_ = draw_nonce();
  const Arena* const arena_;
  const std::size_t message_bytes_, device_bytes_;
  MemoryFile file_;
};

class NodeMemory {
 public:
  // Maps the others' segments and tests what is possible. All members call it with the tickets in rank order,
  // and get the same reach(). Throws Timeout at the deadline. `poll` is called while waiting, and may throw.
  // `members`: on this node, ascending; empty: all.
  static std::unique_ptr<NodeMemory> create(std::unique_ptr<Segment> own, int rank,
                                            const std::vector<std::string>& tickets,
                                            std::chrono::steady_clock::time_point deadline,
                                            const std::function<void()>& poll, std::vector<int> members = {});
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  Reach reach() const { return reach_; }  // equal on all members
  // Whether each member's arena is mapped by all others; equal on all members.
  bool arenas_mapped() const { return arenas_mapped_; }
  bool owns(const void* memory) const { return own_->arena_ && own_->arena_->owns(memory); }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }  // of the group
  const std::vector<int>& members() const { return members_; }
  // Index of a member in members().
  std::size_t place(int rank) const {
    return static_cast<std::size_t>(std::lower_bound(members_.begin(), members_.end(), rank) -
                                    members_.begin());
  }

  SlotUses& uses(int rank, int channel) const;
  RivalWords& rival_words(int rank, int channel) const;
  // Cached by this process: saves short operations a cache line of each other rank.
  struct Seen {
    std::vector<std::uint64_t> ended;  // by place
    std::uint32_t out_of_turn = 0;     // bit i: this rank has ended use SlotUses::ended + i
  };
  Seen& seen(int channel) const { return seen_[static_cast<std::size_t>(channel)]; }
  Slot& slot(int rank, int channel, int number) const {
    return reinterpret_cast<Slot*>(peer(rank).memory + kSlotsStart)[channel * kSlots + number];
  }
  // The call of a slot's owner, by generation as Slot::history; only read if the histories differ.
  CallRecord& record(int rank, int channel, int number, std::uint64_t generation) const {
    auto* const all = reinterpret_cast<CallRecord*>(&slot(rank, kSlotChannels, 0));
    return all[static_cast<std::uint64_t>(channel * kSlots + number) * 2 + generation % 2];
  }
  std::byte* staging(int rank, int channel, int number) const;

  // Bytes of each rank's area for messages: the minimum of all ranks. Areas are zero at first.
  std::size_t message_bytes() const { return message_bytes_; }
  std::byte* messages(int rank) const { return devices(rank) + own_->device_bytes_; }
  // Each rank's area for its devices: zero at first.
  std::byte* devices(int rank) const;

  // Another rank's [address, address + bytes) as mapped here; null if it is not all in that rank's arena.
  std::byte* mapped(int rank, std::uint64_t address, std::size_t bytes) const {
    const auto& arena = peer(rank).arena;
    return arena ? arena->at(address, bytes) : nullptr;
  }

  // Copies between this and another rank's process; Reach::All. Throw Error(System), also for a reused pid.
  void read(int rank, void* to, std::uint64_t from, std::size_t bytes) const;
  void write(int rank, std::uint64_t to, const void* from, std::size_t bytes) const;
  // Whether the kernel can copy these buffers of this process, judged by their first bytes; null: yes.
  static bool is_copied(const void* first, const void* second);
  // As read() and write(), but false, maybe after a partial copy, if the kernel cannot copy it (a device's).
  bool try_read(int rank, void* to, std::uint64_t from, std::size_t bytes) const;
  bool try_write(int rank, std::uint64_t to, const void* from, std::size_t bytes) const;

 private:
  static constexpr std::size_t kSlotsStart = 4096;  // in a segment; a page
  struct Peer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::int64_t pid = 0;
    std::uint64_t nonce = 0, nonce_address = 0;  // in its process
    std::shared_ptr<ArenaView> arena;            // null: not mapped
  };
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  NodeMemory(std::unique_ptr<Segment> own, int rank, std::size_t size, std::vector<int> members);
  Reach attach(const std::vector<std::string>& tickets);  // also sets arenas_mapped_
  bool probe(int rank) const;
  [[noreturn]] void fail_at(int rank, const char* what, int error) const;

  const std::unique_ptr<Segment> own_;
  const int rank_;
  std::vector<Peer> peers_;  // by rank
  const std::vector<int> members_;
  Reach reach_ = Reach::None;
  bool arenas_mapped_ = true;
  std::size_t message_bytes_ = 0;
  mutable std::array<Seen, kSlotChannels> seen_;
};

}  // namespace mpi_gdr::shm
