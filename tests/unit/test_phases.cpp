// Collectives over several nodes in phases: the phases together perform the collective, for any set of
// buffers that are reachable inside the nodes, and the parts of a call access disjoint data.
#include "collectives/phases.hpp"
#include "in_place.hpp"
#include "schedule/scattered.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;

namespace {

constexpr Tuning kInside{.chunk_bytes = 64, .max_lanes = 2, .staging_bytes = 2048, .in_place = true};

// One rank's phases as a single schedule, with these buffers reachable.
SchedulePtr together(const CollectiveSpec& spec, const Topology& topology, Phases phases,
                     const Reached& reached) {
  Reached here;
  for (const int rank : topology.members(topology.node(spec.rank))) {
    here.input.push_back(reached.input[rank]);
    here.output.push_back(reached.output[rank]);
  }
  for (Phase& phase : phases.phases)
    if (phase.kind == Phase::Kind::Devices) phase.schedule = in_place(*phase.schedule, phase.spec.rank, here);
  ScheduleWriter writer("phases");
  phases.lanes = phases.parts;
  join(writer, spec, topology, phases);
  return writer.finish();
}

// Up to seven nodes, for which the table selects other algorithms between the nodes.
const std::vector<std::vector<int>> kEven = {{0, 0, 1, 1},
                                             {0, 1, 0, 1},
                                             {0, 0, 0, 1, 1, 1},
                                             {2, 0, 1, 1, 2, 0},
                                             {0, 0, 0, 0, 1, 1, 1, 1},
                                             {0, 0, 1, 1, 2, 2, 3, 3, 4, 4},
                                             {0, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 0}};
const std::vector<std::vector<int>> kUneven = {{0, 0, 0, 1, 1}, {0, 1, 1, 0, 0, 1, 2, 2}, {0, 1, 1, 1}};

struct Made {
  std::vector<CollectiveSpec> specs;
  std::vector<Phases> phases;  // by rank
};

Made make(CollectiveSpec spec, const Topology& topology, const Tuning& between) {
  Made made;
  spec.size = topology.size();
  for (spec.rank = 0; spec.rank < spec.size; ++spec.rank) {
    made.specs.push_back(spec);
    made.phases.push_back(phases_of(spec, topology, Phase::Kind::Devices, kInside, between));
  }
  return made;
}

void expect_right(const Made& made, const Topology& topology, const Reached& reached) {
  unit::Group group{made.specs, {}};
  for (std::size_t r = 0; r < made.specs.size(); ++r)
    group.schedules.push_back(together(made.specs[r], topology, made.phases[r], reached));
  unit::expect_right(group);
}

const std::vector<Tuning> kBetween = {{.chunk_bytes = 1 << 20, .max_lanes = 1},
                                      {.chunk_bytes = 64, .max_lanes = 1}};

void expect_right(CollectiveSpec spec, const std::vector<int>& nodes, const Tuning& between) {
  if (unit::kSanitized && nodes.size() > 6) return;  // the same code, ten times slower
  const Topology topology(nodes);
  spec.dtype = DataType::Float32;
  const Made made = make(spec, topology, between);
  const auto none = [](int) { return false; };
  const auto all = [](int) { return true; };
  const auto odd = [](int r) { return r % 2 == 1; };
  expect_right(made, topology, reached_by(topology.size(), none, none));
  expect_right(made, topology, reached_by(topology.size(), all, all));
  expect_right(made, topology, reached_by(topology.size(), odd, none));
}

}  // namespace

TEST(reductions_in_phases) {
  for (const Collective collective : {Collective::AllReduce, Collective::ReduceScatter})
    for (const auto& nodes : kEven) {
      for (const std::uint64_t count : {0u, 1u, 5u, 1000u, 9000u})
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum})
          for (const Tuning& between : kBetween) {
            expect_right({.collective = collective, .count = count, .op = op}, nodes, between);
          }
    }
}

TEST(data_movement_in_phases) {
  for (const auto& nodes : kEven)
    for (const std::uint64_t count : {0u, 1u, 5u, 1000u, 9000u})
      for (const Tuning& between : kBetween) {
        expect_right({.collective = Collective::AllGather, .count = count}, nodes, between);
        for (const int root : {0, static_cast<int>(nodes.size()) - 1})
          expect_right({.collective = Collective::Broadcast, .root = root, .count = count}, nodes, between);
      }
}

TEST(fewer_leaders_than_ranks) {
  std::vector<std::vector<int>> placements = kEven;
  placements.insert(placements.end(), kUneven.begin(), kUneven.end());
  for (const auto& nodes : placements) {
    const Topology topology(nodes);
    for (int leaders = 1; leaders <= topology.min_node_size(); ++leaders)
      for (Tuning between : kBetween)
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum}) {
          between.leaders = leaders;
          const CollectiveSpec spec{.collective = Collective::AllReduce, .count = 3000, .op = op};
          expect_right(spec, nodes, between);
          const Made made = make(spec, topology, between);
          for (int r = 0; r < topology.size(); ++r) {
            const std::vector<Phase>& phases = made.phases[r].phases;
            const auto leads = [](const Phase& phase) { return phase.kind == Phase::Kind::Messages; };
            CHECK(std::any_of(phases.begin(), phases.end(), leads) == (topology.place(r) < leaders));
          }
        }
  }
}

TEST(nodes_of_unequal_sizes) {
  for (const auto& nodes : kUneven) {
    const Topology topology(nodes);
    for (const Tuning& between : kBetween)
      for (const std::uint64_t count : {1u, 1000u}) {
        expect_right({.collective = Collective::AllReduce, .count = count, .op = ReduceOp::Avg}, nodes,
                     between);
        for (int root = 0; root < topology.size(); ++root)
          expect_right({.collective = Collective::Broadcast, .root = root, .count = count}, nodes, between);
      }
    for (const Collective collective : {Collective::AllGather, Collective::ReduceScatter})
      CHECK(!has_phases({collective, 0, topology.size()}, topology));
  }
}

// The engine runs phases between nodes concurrently with phases inside.
TEST(parts_are_in_an_order_in_which_they_overlap) {
  const Topology topology({0, 0, 1, 1});
  for (const Collective collective :
       {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast}) {
    const CollectiveSpec spec{collective, 0, 4, 0, 100000, DataType::Float32};
    const std::vector<Phase> phases =
        phases_of(spec, topology, Phase::Kind::Devices, kInside, {.chunk_bytes = 64}).phases;
    const bool three = collective == Collective::AllReduce;
    CHECK(phases.size() == (three ? 24u : 16u));
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const Phase& phase = phases[i];
      CHECK(phase.depends_on < static_cast<int>(i));
      if (phase.depends_on < 0) continue;
      const Phase& before = phases[static_cast<std::size_t>(phase.depends_on)];
      CHECK(before.part == phase.part && before.kind != phase.kind);
      // A phase inside follows a phase of another part, on which it does not depend.
      if (three && phase.kind == Phase::Kind::Devices && phase.part < 7)
        CHECK(phases[i - 1].part == phase.part + 1);
    }
  }
}

TEST(steps_are_cut_where_pieces_end) {
  ScheduleWriter writer("cut");
  writer.copy({Buffer::Output, 0, 10}, {Buffer::Input, 0, 10});
  writer.round();
  writer.copy({Buffer::Staging, 4, 6}, {Buffer::Output, 2, 6});
  writer.staging(10);
  const SchedulePtr cut =
      scattered(*writer.finish(), 0, {{{{100, 4}, {0, 0}, {50, 6}}}, {{{30, 7}, {7, 3}}}});
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> seen;  // to, from, count
  for (const Step& step : cut->steps)
    seen.emplace_back(step.dst.offset, cut->source(step).offset, step.dst.count);
  CHECK(seen == decltype(seen)({{30, 100, 4}, {34, 50, 3}, {7, 53, 3}, {4, 32, 5}, {9, 7, 1}}));
}

UNIT_MAIN()
