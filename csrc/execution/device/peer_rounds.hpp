// How a schedule on shared memory, of one lane, becomes work of one queue. The rounds in order; in each what
// tells others of earlier rounds, then copies and reductions, then what waits for others.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.hpp"
#include "execution/local_step.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

// `signal(n)`: this rank's n-th Signal; `local(step)`: a Copy or Reduce; `wait(peer, n)`: until
// the peer has come to its n-th. n from 1.
template <typename Signal, typename Local, typename Wait>
void submit_rounds(const Schedule& schedule, int size, const Signal& signal, const Local& local,
                   const Wait& wait) {
  std::vector<std::uint32_t> consumed(static_cast<std::size_t>(size));
  std::uint32_t notices = 0;
  for (const Round& round : schedule.rounds) {
    const auto steps = schedule.steps_of(round);
    for (const Step& step : steps)  // of earlier rounds: first
      if (step.kind == StepKind::Signal) signal(++notices);
    for (const Step& step : steps)
      if (step.kind == StepKind::Copy || step.kind == StepKind::Reduce) local(step);
    for (const Step& step : steps)
      if (step.kind == StepKind::Wait) wait(step.peer, ++consumed[static_cast<std::size_t>(step.peer)]);
  }
}

// Of this rank's memory, or of Staging in `slot` of the node, which may be null without any.
inline void* peer_address(const Slice& slice, const Binding& binding, const ipc::DeviceNode* node, int slot) {
  const bool own = slice.owner < 0 || (node && slice.owner == node->rank());
  if (slice.buffer == Buffer::Staging)
    return node->staging(own ? node->rank() : slice.owner, slot) + slice.offset * item_size(binding.dtype);
  MPI_GDR_CHECK(own);
  return const_cast<std::byte*>(source_address(slice, binding));
}

}  // namespace mpi_gdr
