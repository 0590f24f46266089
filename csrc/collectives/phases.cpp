#include "collectives/phases.hpp"

#include <memory>

#include "collectives/build.hpp"
#include "collectives/selection_table.hpp"
#include "common/error.hpp"

namespace mpigdr {

SchedulePtr among(const Schedule& schedule, const std::vector<int>& ranks) {
  auto moved = std::make_shared<Schedule>(schedule);
  for (Step& step : moved->steps)
    if (step.peer >= 0) step.peer = ranks[static_cast<std::size_t>(step.peer)];
  return moved;
}

std::vector<Phase> all_reduce_phases(const CollectiveSpec& spec, const Topology& topology,
                                     const Tuning& inside, const Tuning& between) {
  MPIGDR_CHECK(topology.even() && topology.nodes() > 1 && topology.fewest() > 1 &&
               spec.size == topology.size());
  const int node = topology.node(spec.rank), place = topology.place(spec.rank);
  const int ranks = topology.fewest(), nodes = topology.nodes();
  CollectiveSpec slices;  // among the ranks of the node
  slices.rank = place;
  slices.size = ranks;
  slices.dtype = spec.dtype;
  for (int r = 0; r < ranks; ++r)
    slices.counts.push_back(collectives::piece({Buffer::Output, 0, spec.count},
                                               static_cast<std::uint64_t>(ranks),
                                               static_cast<std::uint64_t>(r))
                                .count);
  const std::uint64_t mine = block_offset(slices, place), count = block_count(slices, place);

  Phase scatter{true, slices, nullptr, 0, mine};
  scatter.spec.collective = Collective::ReduceScatter;
  // The mean is taken at the end; a factor is in when the nodes meet.
  scatter.spec.op = spec.op == ReduceOp::Avg ? ReduceOp::Sum : spec.op;
  scatter.schedule = collectives::reduce_scatter_staged(scatter.spec, inside);

  Phase reduce{false, {}, nullptr, mine, mine};
  reduce.spec.collective = Collective::AllReduce;
  reduce.spec.rank = node;
  reduce.spec.size = nodes;
  reduce.spec.count = count;
  reduce.spec.dtype = spec.dtype;
  reduce.spec.op = spec.op == ReduceOp::PreMulSum ? ReduceOp::Sum : spec.op;
  std::vector<int> peers;
  for (int v = 0; v < nodes; ++v) peers.push_back(topology.members(v)[static_cast<std::size_t>(place)]);
  reduce.schedule = among(*select_algorithm(reduce.spec, false).build(reduce.spec, between), peers);

  Phase gather{true, slices, nullptr, mine, 0};
  gather.spec.collective = Collective::AllGather;
  gather.schedule = collectives::all_gather_staged(gather.spec, inside);
  return {scatter, reduce, gather};
}

}  // namespace mpigdr
