// Who hears of the rounds of schedules that run on host memory
// (MPI_GDR_TRACE). All calls come from the holder of the progress role.
#pragma once

#include <cstdint>
#include <memory>

#include "common/types.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

// Of one schedule that runs.
class RoundObserver {
 public:
  virtual ~RoundObserver() = default;
  // Of this lane's round in work: before its messages are posted, after its local steps, when it is over.
  virtual void began(int lane) = 0;
  virtual void worked(int lane) = 0;
  virtual void ended(int lane, std::uint32_t index, const Round& round) = 0;
};

class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  // A schedule begins, on this rank. It outlives what is returned, and so does this observer.
  virtual std::unique_ptr<RoundObserver> observe(const Schedule& schedule, DataType dtype, int rank) = 0;
};

}  // namespace mpi_gdr
