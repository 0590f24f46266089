// How a lane of a schedule on shared memory becomes work of one queue. The lane's rounds in order; in each
// what tells others of earlier rounds, then copies and reductions, then what waits for others.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace mpigdr {

// `notify(n)`: this rank's n-th Notify of the lane; `local(step)`: a Copy or Reduce; `await(peer, n)`: until
// the peer has come to its n-th. n from 1.
template <typename Notify, typename Local, typename Await>
void submit_peer_lane(const Schedule& schedule, int lane, int size, const Notify& notify, const Local& local,
                      const Await& await) {
  const Lane& rounds = schedule.lanes[static_cast<std::size_t>(lane)];
  std::vector<std::uint32_t> heeded(static_cast<std::size_t>(size));
  std::uint32_t notices = 0;
  for (std::uint32_t k = 0; k < rounds.round_count; ++k) {
    const Round& round = schedule.rounds[rounds.first_round + k];
    const Step* const begin = schedule.steps.data() + round.first_step;
    const Step* const end = begin + round.step_count;
    for (const Step* step = begin; step != end; ++step)  // of earlier rounds: first
      if (step->kind == StepKind::Notify) notify(++notices);
    for (const Step* step = begin; step != end; ++step)
      if (step->kind == StepKind::Copy || step->kind == StepKind::Reduce) local(*step);
    for (const Step* step = begin; step != end; ++step)
      if (step->kind == StepKind::Await) await(step->peer, ++heeded[static_cast<std::size_t>(step->peer)]);
  }
}

}  // namespace mpigdr
