#include "collectives/collectives.hpp"

#include "collectives/adaptive.hpp"
#include "collectives/build.hpp"

namespace mpigdr {

const std::vector<Algorithm>& algorithms() {
  using namespace collectives;
  using C = Collective;
  static const std::vector<Algorithm> all = {
      {C::AllReduce, "recursive_doubling", all_reduce_recursive_doubling,
       "lg p steps, n lg p bytes; p not a power of two: 2 steps more"},
      {C::AllReduce, "ring", all_reduce_ring, "2(p-1) steps, 2(p-1)/p n bytes, reduction overlapped"},
      {C::AllReduce, "rabenseifner", all_reduce_rabenseifner,
       "2 lg p steps, 2(p-1)/p n bytes; p not a power of two: 2 steps, n bytes more"},
      {C::AllReduce, "flag", all_reduce_flag, "node: 1 flag, n copied, pn read per rank", true},
      {C::AllReduce, "staged", all_reduce_staged,
       "node: 1 flag per chunk, (p-1)/p n copied in, n reduced, n copied out", true},
      {C::AllReduce, "direct", all_reduce_direct, "node: 2 flags, n read and n written per rank", true},
      {C::AllReduce, "adaptive", adaptive<all_reduce_direct, all_reduce_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::AllReduce, "two_level", all_reduce_two_level,
       "nodes: reduce_scatter and all_gather among l leaders of a node, all_reduce of n/l between nodes",
       false, true},
      {C::AllReduce, "native", nullptr, "MPI_Iallreduce"},
      {C::Broadcast, "binomial", broadcast_binomial, "lg p steps, n lg p bytes at the root"},
      {C::Broadcast, "chain", broadcast_chain, "p - 2 + k steps for k chunks, n bytes per rank"},
      {C::Broadcast, "staged", broadcast_staged, "node: 1 flag per chunk, n copied in and out", true},
      {C::Broadcast, "direct", broadcast_direct, "node: 2 flags, (p-1)/p n copied per rank", true},
      {C::Broadcast, "adaptive", adaptive<broadcast_direct, broadcast_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::Broadcast, "two_level", broadcast_two_level,
       "nodes: chain of N nodes, binomial tree in each; N - 2 + k + lg m steps for k chunks", false, true},
      {C::Broadcast, "native", nullptr, "MPI_Ibcast"},
      {C::Reduce, "binomial", reduce_binomial, "lg p + k - 1 steps for k chunks, n bytes per rank"},
      {C::Reduce, "rabenseifner", reduce_rabenseifner,
       "2 lg p steps, 2(p-1)/p n bytes; p not a power of two: 1 step, n bytes more"},
      {C::Reduce, "staged", reduce_staged,
       "node: 1 flag per chunk, (p-1)/p n copied in, n reduced, n copied out", true},
      {C::Reduce, "direct", reduce_direct, "node: 2 flags, n read and n/p written per rank", true},
      {C::Reduce, "adaptive", adaptive<reduce_direct, reduce_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::Reduce, "native", nullptr, "MPI_Ireduce"},
      {C::AllGather, "recursive_doubling", all_gather_recursive_doubling, "lg p steps, (p-1)/p n bytes"},
      {C::AllGather, "ring", all_gather_ring, "p-1 steps, (p-1)/p n bytes"},
      {C::AllGather, "bruck", all_gather_bruck, "lg p steps of one message, (p-1)/p n bytes, n copied"},
      {C::AllGather, "staged", all_gather_staged, "node: 1 flag per chunk, n/p copied in, n out", true},
      {C::AllGather, "direct", all_gather_direct, "node: 2 flags, (p-1)/p n copied per rank", true},
      {C::AllGather, "adaptive", adaptive<all_gather_direct, all_gather_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::AllGather, "two_level", all_gather_two_level,
       "nodes: N steps, each block crosses once to each node", false, true},
      {C::AllGather, "native", nullptr, "MPI_Iallgather"},
      {C::ReduceScatter, "pairwise", reduce_scatter_pairwise,
       "p-1 steps, (p-1)/p n bytes, one fold over all ranks"},
      {C::ReduceScatter, "ring", reduce_scatter_ring, "p-1 steps, (p-1)/p n bytes, reduction overlapped"},
      {C::ReduceScatter, "staged", reduce_scatter_staged, "node: 1 flag per chunk, n copied in, n read",
       true},
      {C::ReduceScatter, "direct", reduce_scatter_direct, "node: 2 flags, n read, n/p written per rank",
       true},
      {C::ReduceScatter, "adaptive", adaptive<reduce_scatter_direct, reduce_scatter_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::ReduceScatter, "two_level", reduce_scatter_two_level,
       "nodes: N + 1 steps, folded in the node, then (N-1)/p n bytes per rank between nodes", false, true},
      {C::ReduceScatter, "native", nullptr, "MPI_Ireduce_scatter_block"},
      {C::AllToAll, "pairwise", all_to_all_pairwise, "p-1 steps, n bytes; counts may differ"},
      {C::AllToAll, "bruck", all_to_all_bruck,
       "lg p steps, n/2 lg p bytes; even splits only, never chosen by default"},
      {C::AllToAll, "staged", all_to_all_staged, "node: 1 flag per chunk, n copied in and out", true},
      {C::Barrier, "dissemination", barrier_dissemination, "lg p steps of one element"},
      {C::Barrier, "flag", barrier_flag, "node: 1 flag", true},
      {C::Barrier, "two_level", barrier_two_level, "nodes: 2 steps inside, lg N between", false, true},
      {C::Barrier, "native", nullptr, "MPI_Ibarrier"},
      {C::Gather, "linear", gather_linear, "1 step, p-1 messages to the root, n/p bytes per rank"},
      {C::Gather, "binomial", gather_binomial, "lg p steps, (p-1)/p n bytes to the root"},
      {C::Gather, "direct", gather_direct, "node: 2 flags, n/p copied per rank", true},
      {C::Gather, "staged", gather_staged,
       "node: 1 flag per chunk, n/p copied in by each rank, n out by the root", true},
      {C::Gather, "adaptive", adaptive<gather_direct, gather_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::Gather, "native", nullptr, "MPI_Igather"},
      {C::Scatter, "linear", scatter_linear, "1 step, p-1 messages from the root, n bytes at the root"},
      {C::Scatter, "binomial", scatter_binomial, "lg p steps, (p-1)/p n bytes from the root"},
      {C::Scatter, "direct", scatter_direct, "node: 2 flags, n/p copied per rank", true},
      {C::Scatter, "staged", scatter_staged,
       "node: 1 flag per chunk, n copied in by the root, n/p out by each rank", true},
      {C::Scatter, "adaptive", adaptive<scatter_direct, scatter_staged>,
       "node: direct if the tensors of all are in group memory, else staged; 1 flag more", true},
      {C::Scatter, "native", nullptr, "MPI_Iscatter"},
  };
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  return nullptr;
}

}  // namespace mpigdr
