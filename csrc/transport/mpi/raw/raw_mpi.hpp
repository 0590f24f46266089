// The library's own blocking collectives and messages, bare and timed: what `mpi-gdr bench` sets ours
// against. One library an ABI implements them; python/raw_mpi.cpp loads it.
//
// All run on the base communicator, once the network has started, by one thread at a time, in the same order
// on all ranks. Memory is the caller's. A rank that is still in one of them after the timeout ends its
// process with a message: nothing inside MPI can be given up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/types.hpp"

namespace mpi_gdr::mpi {

// `input` is what the call reads on this rank. In place: MPI_IN_PLACE where the standard has it, and then
// input and output are one buffer: the whole one of all_gather, gather, scatter (on the root), all_to_all and
// reduce_scatter, whose result is at the begin. Broadcast has no other form.
struct RawCall {
  // None: MPI_Sendrecv in a ring, to the next rank, from the one before.
  std::optional<Collective> collective;
  bool in_place = false;
  void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;  // elements, of one block where the collective has blocks
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
};

struct RawTiming {
  int warmup = 0, iterations = 1;
  // Before every timed call `bytes` (0 where this rank reads nothing) are copied from `fresh` to `to`, and a
  // barrier follows; neither is timed. Without, the calls run back to back. Equal on all ranks.
  bool rewrite = false;
  const void* fresh = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // for all calls together
};

// --- messages between two ranks, timed by the loops of OSU's micro-benchmarks: what
// `mpi-gdr bench latency|bw|bibw|multi_bw` sets ours against ---

// One turn on one rank of a pair. A ping-pong: the first rank sends outgoing[0] and receives incoming[0], the
// other the reverse. Else a window: all receives are posted, then all sends, then all are waited for; with
// `reply` the first rank then waits for 4 bytes from the other.
struct MessageTurn {
  bool ping_pong = false, reply = false, first = false;
  int peer = 0;
  std::vector<const void*> outgoing;
  std::vector<void*> incoming;
  std::size_t bytes = 0;  // of each message
};

class RawMpi {
 public:
  virtual ~RawMpi() = default;

  // "" if MPI can do it; else why not: no MPI datatype of this meaning, or more than an int counts.
  virtual std::string objection(const RawCall& call) = 0;
  // Microseconds of every timed call on this rank. Throws InvalidUsage where there is an objection.
  virtual std::vector<double> time_call(const RawCall& call, const RawTiming& timing) = 0;
  // Seconds of `iterations` turns behind a barrier and `warmup` others. All ranks call it; one that has no
  // peer has `turn` null. Ends the process if it takes longer than the timeout.
  virtual double time_messages(const MessageTurn* turn, int warmup, int iterations,
                               std::chrono::milliseconds timeout) = 0;

  // `mine` of all ranks, one after another; equally many on each.
  virtual std::vector<double> all_gather(const std::vector<double>& mine) = 0;
  virtual void barrier() = 0;

  // MPI_Iallreduce in place, and MPI_Test by hand. At most one at a time.
  virtual void start_all_reduce(void* buffer, std::uint64_t count, DataType dtype, ReduceOp op) = 0;
  virtual bool test_all_reduce() = 0;  // true: done, or none was started
};

// What each library exports.
using RawMpiFunction = RawMpi* (*)();
constexpr const char* kRawMpiSymbol = "mpi_gdr_raw_mpi";

}  // namespace mpi_gdr::mpi
