#include "engine/calls.hpp"

#include <algorithm>
#include <numeric>

namespace mpigdr {
namespace {

// Bytes that this rank brings in.
std::uint64_t contribution(const CollectiveSpec& spec) {
  std::uint64_t elements = spec.count;
  if (spec.collective == Collective::AllToAll)
    elements = std::accumulate(spec.send_counts.begin(), spec.send_counts.end(), std::uint64_t{0});
  if (spec.collective == Collective::AllGather) elements = block_count(spec, spec.rank);
  if (spec.collective == Collective::ReduceScatter) elements = block_offset(spec, spec.size);
  if (spec.collective == Collective::Scatter)
    elements = spec.rank == spec.root ? block_offset(spec, spec.size) : 0;
  return elements * item_size(spec.dtype);
}

}  // namespace

bool is_all_to_all(const Call& call) {
  const auto* collective = std::get_if<CollectiveCall>(&call);
  return collective && collective->spec.collective == Collective::AllToAll;
}

std::uint64_t sequences_of(const Call& call) {
  if (std::holds_alternative<MessageCall>(call)) return 0;
  return std::holds_alternative<StagedCall>(call) ? 2 : 1;
}

const CollectiveSpec& spec_of(const Call& call) {
  if (const auto* staged = std::get_if<StagedCall>(&call)) return staged->first.spec;
  return std::get<CollectiveCall>(call).spec;
}

std::uint64_t bytes_of(const Call& call) {
  const auto* message = std::get_if<MessageCall>(&call);
  return message ? message->bytes : contribution(spec_of(call));
}

std::uint64_t largest_buffer(const Call& call) {
  const auto* collective = std::get_if<CollectiveCall>(&call);
  return collective ? largest_buffer(collective->spec) : bytes_of(call);
}

std::uint64_t largest_buffer(const CollectiveSpec& spec) {
  const auto sum = [](const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  std::uint64_t elements = block_offset(spec, spec.size);
  if (spec.collective == Collective::AllToAll)
    elements = std::max(sum(spec.send_counts), sum(spec.recv_counts));
  if (spec.collective == Collective::AllReduce || spec.collective == Collective::Reduce ||
      spec.collective == Collective::Broadcast)
    elements = spec.count;
  return elements * item_size(spec.dtype);
}

}  // namespace mpigdr
