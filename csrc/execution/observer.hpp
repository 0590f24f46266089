// Observes the rounds of schedules on host memory (MPI_GDR_TRACE). Called by the holder of the progress role.
#pragma once

#include <cstdint>
#include <memory>

#include "common/types.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  // The lane's current round: before its messages are posted, after its local steps, when it is over.
  virtual void began(int lane) = 0;
  virtual void worked(int lane) = 0;
  virtual void ended(int lane, std::uint32_t index, const Round& round) = 0;
};

class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  // Called when a schedule begins on this rank. The schedule and this observer outlive the result.
  virtual std::unique_ptr<RoundObserver> observe(const Schedule& schedule, DataType dtype, int rank) = 0;
};

}  // namespace mpi_gdr
