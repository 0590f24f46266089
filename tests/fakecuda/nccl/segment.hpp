// The memory that the ranks of a communicator share: an unnamed file of the process that made the unique id.
// The other ranks open it through /proc, so nothing is left behind however the processes end.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/nccl/api.hpp"

namespace fakenccl {

using namespace mpi_gdr::nccl;
inline constexpr Result kUnhandledCudaError{1}, kSystemError{2};

// Prints "fakenccl: RULE" to stderr and aborts.
[[noreturn]] void fault(const char* rule);

enum class Kind : int { AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Send, Recv };
inline constexpr int kCollectives = 5, kSizeClasses = 3;
inline constexpr std::size_t kSlotBytes = 256 << 10;

// The parameters of a collective that are equal on all ranks.
struct Signature {
  Kind kind{};
  int type = 0, op = 0, root = 0;
  std::size_t count = 0, collectives = 0;  // the latter: number in the kernel
  bool operator==(const Signature&) const = default;
};

// Written by its rank, read by all. Zeroed.
struct alignas(64) RankCell {
  std::atomic<int> attached;         // the rank's device + 1
  std::atomic<bool> file_closed;     // rank 0's cell: the ranks may share the process that made the id
  std::atomic<std::uint64_t> steps;  // of kernels (kernel.cpp)
  Signature signature;               // of the running collective; `steps` publishes it
  std::atomic<bool> connected[kCollectives][kSizeClasses];
};

// Messages from one rank to another: its slot is full if `written` is greater than `read`.
struct alignas(64) Channel {
  std::atomic<std::uint64_t> written, read;
  std::size_t bytes;               // of the message whose part is in the slot; `written` publishes it
  std::atomic<bool> connected[2];  // sender, receiver
};

class Segment {
 public:
  static std::optional<UniqueId> make_id();
  // Null: the process that made the id has ended, or all ranks had attached before.
  static std::unique_ptr<Segment> open(const UniqueId& id, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  // Once all ranks have attached.
  void close_file();

  RankCell& rank(int rank) { return reinterpret_cast<RankCell*>(memory_)[rank]; }
  Channel& channel(int from, int to) {
    return reinterpret_cast<Channel*>(memory_ + ranks_ * sizeof(RankCell))[from * ranks_ + to];
  }
  std::byte* slot(int rank) { return slots_ + static_cast<std::size_t>(rank) * kSlotBytes; }
  std::byte* slot(int from, int to) { return slot(ranks_ * (from + 1) + to); }

 private:
  Segment(int file, int ranks) : file_(file), ranks_(ranks) {}

  int file_;  // of the process that made the id; otherwise -1
  const int ranks_;
  std::size_t bytes_ = 0;
  std::byte *memory_ = nullptr, *slots_ = nullptr;
};

}  // namespace fakenccl
