#include "schedule/spec.hpp"

#include <algorithm>
#include <numeric>

namespace mpi_gdr {
namespace {

std::uint64_t count_of(Contents contents, const CollectiveSpec& spec,
                       const std::vector<std::uint64_t>& splits) {
  switch (contents) {
    case Contents::None:
      break;
    case Contents::Whole:
      return spec.count;
    case Contents::Block:
      return block_count(spec, spec.rank);
    case Contents::Blocks:
      return block_offset(spec, spec.size);
    case Contents::Splits:
      return std::accumulate(splits.begin(), splits.end(), std::uint64_t{0});
  }
  return 0;
}

}  // namespace

std::uint64_t input_count(const CollectiveSpec& spec) {
  const CollectiveTraits& kind = traits(spec.collective);
  return kind.root == Root::Sends && spec.rank != spec.root ? 0
                                                            : count_of(kind.input, spec, spec.send_counts);
}

std::uint64_t output_count(const CollectiveSpec& spec) {
  const CollectiveTraits& kind = traits(spec.collective);
  return kind.root == Root::Receives && spec.rank != spec.root
             ? 0
             : count_of(kind.output, spec, spec.recv_counts);
}

std::uint64_t largest_buffer(const CollectiveSpec& spec) {
  const CollectiveTraits& kind = traits(spec.collective);
  return item_size(spec.dtype) * std::max(count_of(kind.input, spec, spec.send_counts),
                                          count_of(kind.output, spec, spec.recv_counts));
}

}  // namespace mpi_gdr
