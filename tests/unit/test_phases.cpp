// Collectives over several nodes in phases: each is right among its ranks, and they fit together.
#include "collectives/phases.hpp"
#include "schedules.hpp"
#include "test.hpp"

using namespace mpigdr;

namespace {

constexpr Tuning kInside{.chunk_bytes = 64, .max_lanes = 2, .staging_bytes = 2048, .in_place = true};
constexpr Tuning kBetween{.chunk_bytes = 64, .max_lanes = 2};

void expect_right(const std::vector<int>& ranks, const std::vector<std::vector<Phase>>& all, std::size_t i) {
  unit::Group group;
  for (const int r : ranks) {
    const Phase& phase = all[static_cast<std::size_t>(r)][i];
    group.specs.push_back(phase.spec);
    std::vector<int> numbers(all.size(), -1);  // as among these ranks
    for (std::size_t k = 0; k < ranks.size(); ++k)
      numbers[static_cast<std::size_t>(ranks[k])] = static_cast<int>(k);
    group.schedules.push_back(phase.inside ? phase.schedule : among(*phase.schedule, numbers));
  }
  unit::expect_right(group);
}

}  // namespace

TEST(all_reduce_in_phases) {
  const std::vector<std::vector<int>> placements = {
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {2, 0, 1, 1, 2, 0}, {0, 0, 0, 0, 1, 1, 1, 1}};
  for (const auto& nodes : placements)
    for (const std::uint64_t count : {0u, 1u, 5u, 1000u, 20000u})
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum}) {
        const Topology topology(nodes);
        std::vector<std::vector<Phase>> all;
        for (int r = 0; r < topology.size(); ++r) {
          CollectiveSpec spec{Collective::AllReduce, r, topology.size()};
          spec.count = count;
          spec.dtype = DataType::Float32;
          spec.op = op;
          all.push_back(all_reduce_phases(spec, topology, kInside, kBetween));
        }
        for (int v = 0; v < topology.nodes(); ++v)
          for (const std::size_t i : {0u, 2u}) expect_right(topology.members(v), all, i);
        for (int place = 0; place < topology.fewest(); ++place) {
          std::vector<int> peers;
          for (int v = 0; v < topology.nodes(); ++v)
            peers.push_back(topology.members(v)[static_cast<std::size_t>(place)]);
          expect_right(peers, all, 1);
        }
        std::uint64_t covered = 0;
        for (const int r : topology.members(0)) {
          const std::vector<Phase>& phases = all[static_cast<std::size_t>(r)];
          CHECK(phases[0].inside && !phases[1].inside && phases[2].inside);
          CHECK(phases[0].input == 0 && phases[0].output == covered);  // ranks ascend with their places
          CHECK(phases[1].input == covered && phases[1].output == covered && phases[2].input == covered);
          CHECK(phases[2].output == 0);
          covered += phases[1].spec.count;
          // The factor is in before the nodes meet, the mean is taken then; nothing is done twice.
          CHECK(phases[0].spec.op == (op == ReduceOp::Avg ? ReduceOp::Sum : op));
          CHECK(phases[1].spec.op == (op == ReduceOp::PreMulSum ? ReduceOp::Sum : op));
        }
        CHECK(covered == count);
      }
}

UNIT_MAIN()
