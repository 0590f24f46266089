// All ranks of a group in one process: the transport under the unit tests of the engine and of device
// programs. Matches like MPI (per channel, in order per source and tag, any-source receives), and can be
// late, dead, stuck or broken.
//
// Threads: each rank's Transport is used by one thread at a time, different ranks by different threads
// concurrently. Data is copied on the thread that completes a match, so another rank's thread may access a
// buffer until its request is done. Nothing spins or runs in the background.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/network.hpp"

namespace mpi_gdr {

// One rank's faults. The test may change them at any time from any thread.
class LoopbackFaults {
 public:
  // A dead peer: what this rank sends from now on never arrives.
  std::atomic<bool> dead{false};
  // This many more calls of this rank's transport succeed; every later one throws. Negative: all succeed.
  std::atomic<std::int64_t> calls_before_error{-1};

  // From now on test() blocks until release(), as inside an MPI library.
  void stick() { stuck_.store(true, std::memory_order_release); }
  void release();
  // Blocks while stuck; called by the transport.
  void pass() const;
  // True while a thread is in pass().
  bool held() const { return held_.load(std::memory_order_acquire) > 0; }

 private:
  std::atomic<bool> stuck_{false};
  mutable std::atomic<int> held_{0};
};

struct LoopbackOptions {
  // Sends up to this length are buffered and done at once; longer ones once the receiver has matched.
  std::size_t eager_bytes = 4096;
  int max_tag = 32767;
  bool native = true;  // false: has_native() always returns false
  // Each request stays incomplete for a random number, 0..max_late_tests, of extra test() calls.
  unsigned max_late_tests = 0;
  std::uint64_t seed = 1;
  // Empty, or one per rank; entries may be null.
  std::vector<std::shared_ptr<LoopbackFaults>> faults = {};
};

// Endpoints of ranks 0..size-1, with shared state that lives as long as any of them.
std::vector<std::unique_ptr<Transport>> make_loopback(int size, LoopbackOptions options = {});

// A job whose ranks are threads of one process: the network under the unit tests of job/. Each rank appears
// to be on its own host. Returns one per rank, with shared state that lives as long as any of them. start()
// meets over the store; the transports are make_loopback()'s.
std::vector<std::unique_ptr<Network>> make_loopback_networks(int size);

}  // namespace mpi_gdr
