// Runs the schedules of all ranks of a group symbolically in one process, and proves that
//  - every slice is inside its buffer, Input is never written, no uninitialised element is read;
//  - no two steps of one round, and no two lanes, touch the same memory if one of them writes: so the result
//    does not depend on timing, and running the steps in any one order is enough;
//  - messages match in pairs of equal length, none is left over, nothing waits for ever;
//  - every element of every output is what the collective promises: every contribution once, the factor of
//    PreMulSum and the division of Avg applied once, and the same ordered expression on all ranks, which is
//    one left fold in rank order where the schedule is `ordered`, and one Reduce where it is `flat`;
//  - for a barrier, that no rank leaves before all have entered;
//  - where ranks touch each other's memory, that all of it is ordered (race_detector.hpp).
// The cost depends on the number of steps and slices, not on the count. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/layout.hpp"
#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

struct CheckMode {
  // A Send is over only when its Recv has begun (rendezvous), instead of at once (eager).
  bool synchronous_sends = false;
  // Copy and Reduce of all lanes of a rank wait for each other in one queue, as
  // execution/device/stream_execution.hpp submits them.
  bool device_queue = false;
  // The in-place variant of schedule/spec.hpp: on no rank, on every other one, or on all.
  enum class Aliased : std::uint8_t { None, Odd, All } aliased = Aliased::None;

  bool is_aliased(int rank) const {
    return aliased == Aliased::All || (aliased == Aliased::Odd && rank % 2 == 1);
  }
};

struct CheckResult {
  bool ok = true;
  std::string error;  // names rank, lane, round and step, all counted from 0
  // What the algorithm costs, over all ranks.
  std::uint64_t messages = 0, elements_sent = 0, elements_reduced = 0;
  std::uint64_t steps = 0;  // messages and notifications that follow each other on the longest chain
};

// specs[r] and schedules[r] belong to rank r; specs that do not describe one collective are InvalidUsage.
CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules,
                  const CheckMode& mode);

// In every mode. A failure is reported for the least demanding mode that shows it.
CheckResult check(const std::vector<CollectiveSpec>& specs, const std::vector<SchedulePtr>& schedules);

// What one rank's schedule shows by itself (bounds, read-only input, races). Throws CheckFailure.
void check_rank(const CollectiveSpec& spec, const Schedule& schedule, bool aliased);

// True if the executor skips this step because both sides are the same memory.
bool is_skipped(const Schedule& schedule, const Step& step, const Layout& layout);

}  // namespace mpi_gdr
