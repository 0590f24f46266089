#include "schedule/spec.hpp"

#include <atomic>
#include <unordered_map>

#include "common/error.hpp"

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

Topology::Topology(const std::vector<int>& node_of_rank) {
  if (node_of_rank.empty()) fail(ErrorCode::InvalidUsage, "topology: no ranks, expected at least one");
  std::unordered_map<int, int> numbers;
  for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank) {
    const auto [known, added] =
        numbers.emplace(node_of_rank[static_cast<std::size_t>(rank)], static_cast<int>(members_.size()));
    if (added) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(known->second)];
    node_.push_back(known->second);
    place_.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [least, most] = std::minmax_element(members_.begin(), members_.end(), fewer);
  min_node_size_ = static_cast<int>(least->size());
  max_node_size_ = static_cast<int>(most->size());
  static std::atomic<std::uint64_t> last{0};
  id_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool Topology::consecutive() const {
  for (const std::vector<int>& all : members_)
    if (all.back() - all.front() + 1 != static_cast<int>(all.size())) return false;
  return true;
}

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
