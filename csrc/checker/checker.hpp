// Runs the schedules of all ranks of a group symbolically and proves that
//  - slices are inside their buffers, Input is never written, uninitialised elements are never read;
//  - steps of one round, and lanes, do not conflict on memory, so that timing does not matter;
//  - messages match in pairs of equal length, none is left over, nothing waits forever;
//  - outputs are what the collective promises: every contribution once, PreMulSum and Avg applied once, the
//    same ordered expression on all ranks (a left fold in rank order if `ordered`, one Reduce if `flat`);
//  - no rank leaves a barrier before all have entered;
//  - accesses to other ranks' memory are ordered (race_detector.hpp).
// Costs depend on the number of steps and slices, not on the count. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/layout.hpp"
#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

struct CheckMode {
  // A Send completes when its Recv has begun (rendezvous), not at once (eager).
  bool synchronous_sends = false;
  // Copy and Reduce of all lanes of a rank run in one queue (execution/device/stream_execution.hpp).
  bool device_queue = false;
  // In place, as in schedule/spec.hpp: on no rank, on odd ranks, or on all.
  enum class Aliased : std::uint8_t { None, Odd, All } aliased = Aliased::None;

  bool is_aliased(int rank) const {
    return aliased == Aliased::All || (aliased == Aliased::Odd && rank % 2 == 1);
  }
};

struct CheckResult {
  bool ok = true;
  std::string error;  // names rank, lane, round and step, all from 0
  std::uint64_t messages = 0, elements_sent = 0, elements_reduced = 0;
  std::uint64_t steps = 0;  // messages and signals on the critical path
};

// specs[r] and schedules[r] belong to rank r. Throws InvalidUsage if specs do not describe one collective.
CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules,
                  const CheckMode& mode);

// Checks every mode; reports the failing mode with the fewest constraints.
CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules);

// Throws CheckFailure.
void check_rank(const CollectiveSpec& spec, const Schedule& schedule, bool aliased);

// The executor skips a step whose source and destination are the same memory.
bool is_skipped(const Schedule& schedule, const Step& step, const Layout& layout);

}  // namespace mpi_gdr
