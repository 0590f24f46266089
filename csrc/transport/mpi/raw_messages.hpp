// Messages of the library itself between two ranks, timed by the loops of OSU's micro-benchmarks: what
// `mpi-gdr bench latency|bw|bibw|multi_bw` sets ours against. As raw_calls.hpp, on the base communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace mpigdr::mpi {

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

// Seconds of `iterations` turns behind a barrier and `warmup` others. All ranks call it; one that has no peer
// has `turn` null. Ends the process if it takes longer than the timeout.
double time_messages(const MessageTurn* turn, int warmup, int iterations, std::chrono::milliseconds timeout);

}  // namespace mpigdr::mpi
