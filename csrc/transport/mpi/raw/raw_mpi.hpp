// The library's own blocking collectives and messages, timed: the baseline of `mpi-gdr bench`. Run on the
// base communicator, once the network has started, by one thread at a time, in the same order on all ranks.
// Memory is the caller's. A rank still in a call after the timeout ends its process, since MPI calls cannot
// be cancelled.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/types.hpp"

namespace mpi_gdr::mpi {

// `input` is what the call reads on this rank. In place: MPI_IN_PLACE where the standard has it; input and
// output are then one buffer: the whole one of all_gather, gather, scatter (on the root), all_to_all and
// reduce_scatter, whose result is at the start. Broadcast is always in place.
struct RawCall {
  // None: MPI_Sendrecv in a ring, to the next rank, from the previous one.
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
  // barrier follows; neither is timed. Without it the calls run back to back. Equal on all ranks.
  bool rewrite = false;
  const void* fresh = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // for all calls together
};

// One turn on one rank of a pair, as in the loops of OSU's micro-benchmarks. Ping-pong: the first rank sends
// outgoing[0] and receives incoming[0], the other the reverse. Else a window: all receives are posted, then
// all sends, then all are waited for; with `reply` the first rank then waits for 4 bytes from the other.
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

  // "" if MPI can do it; else why not: no MPI datatype of this meaning, or a count beyond int.
  virtual std::string explain_unsupported(const RawCall& call) = 0;
  // Microseconds of every timed call on this rank. Throws InvalidUsage if the call is unsupported.
  virtual std::vector<double> time_call(const RawCall& call, const RawTiming& timing) = 0;
  // Seconds of `iterations` turns, after `warmup` others. Called by all ranks; null: this rank has no peer.
  virtual double time_messages(const MessageTurn* turn, int warmup, int iterations,
                               std::chrono::milliseconds timeout) = 0;

  // `mine` of all ranks, concatenated; of equal size on each.
  virtual std::vector<double> all_gather(const std::vector<double>& mine) = 0;
  virtual void barrier() = 0;

  // MPI_Iallreduce in place. At most one outstanding.
  virtual void start_all_reduce(void* buffer, std::uint64_t count, DataType dtype, ReduceOp op) = 0;
  virtual bool test_all_reduce() = 0;  // true: done, or none was started
};

// Exported by each library.
using RawMpiFunction = RawMpi* (*)();
constexpr const char* kRawMpiSymbol = "mpi_gdr_raw_mpi";

}  // namespace mpi_gdr::mpi
