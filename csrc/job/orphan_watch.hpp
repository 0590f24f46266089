#pragma once

#include <chrono>
#include <optional>

#include "bootstrap/process_id.hpp"

namespace mpi_gdr {

// Ends this process after its torchrun agent has ended: nothing else would end it. Not thread-safe.
class OrphanWatch {
 public:
  // Finds the agent; false: torchrun did not start this process, or the agent is not visible.
  bool begin();
  // Warns when the agent has ended, and ends the process MPI_GDR_ORPHAN_GRACE later.
  void look();

 private:
  std::optional<ProcessId> agent_;
  std::chrono::steady_clock::time_point orphaned_{};
};

}  // namespace mpi_gdr
