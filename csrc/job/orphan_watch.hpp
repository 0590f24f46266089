// torchrun's agent, which started this rank: when it has ended, nothing ends the rank any more.
#pragma once

#include <chrono>
#include <optional>

#include "bootstrap/process_id.hpp"

namespace mpi_gdr {

// One thread at a time.
class OrphanWatch {
 public:
  // Finds the agent; false: torchrun has not started this process.
  bool begin();
  // Once the agent has ended, says so, and ends the process MPI_GDR_ORPHAN_GRACE later.
  void look();

 private:
  std::optional<ProcessId> agent_;
  std::chrono::steady_clock::time_point orphaned_{};
};

}  // namespace mpi_gdr
