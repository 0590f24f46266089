// Builds schedules for a whole group and breaks schedules on purpose.
#pragma once

#include "checker/checker.hpp"
#include "collectives/collectives.hpp"
#include "schedule/rewrite.hpp"
#include "test.hpp"

namespace unit {

struct Group {
  std::vector<mpi_gdr::CollectiveSpec> specs;
  std::vector<mpi_gdr::SchedulePtr> schedules;
};

inline std::vector<mpi_gdr::CollectiveSpec> specs_for(mpi_gdr::CollectiveSpec spec, bool even = false) {
  std::vector<mpi_gdr::CollectiveSpec> specs;
  for (int r = 0; r < spec.size; ++r) {
    spec.rank = r;
    if (spec.collective == mpi_gdr::Collective::AllToAll) {
      // Uneven and with zeros where the algorithm allows it.
      const auto count = [&](int from, int to) {
        if (even) return spec.count;
        return (spec.count * static_cast<unsigned>((from * 7 + to * 3) % 5)) / 2;
      };
      spec.send_counts.clear();
      spec.recv_counts.clear();
      for (int other = 0; other < spec.size; ++other) {
        spec.send_counts.push_back(count(r, other));
        spec.recv_counts.push_back(count(other, r));
      }
    }
    specs.push_back(spec);
  }
  if (spec.collective == mpi_gdr::Collective::AllToAll && spec.topology)
    for (mpi_gdr::CollectiveSpec& of : specs) {
      const auto& neighbours = spec.topology->members(spec.topology->node(of.rank));
      if (neighbours.size() == 1) continue;
      for (const int r : neighbours) {
        const auto& sends = specs[r].send_counts;
        of.node_counts.insert(of.node_counts.end(), sends.begin(), sends.end());
      }
    }
  return specs;
}

inline Group build(const mpi_gdr::Algorithm& algorithm, const mpi_gdr::CollectiveSpec& spec,
                   const mpi_gdr::Tuning& tuning = {}) {
  Group group{specs_for(spec, std::string(algorithm.name) == "bruck"), {}};
  for (const auto& s : group.specs) group.schedules.push_back(algorithm.build(s, tuning));
  return group;
}

inline void expect_right(const Group& group) {
  const mpi_gdr::CheckResult result = mpi_gdr::check(group.specs, group.schedules);
  if (result.ok) return;
  const auto& spec = group.specs[0];
  throw std::runtime_error(std::string(name(spec.collective)) + " p=" + std::to_string(spec.size) +
                           " count=" + std::to_string(spec.count) + " root=" + std::to_string(spec.root) +
                           " op=" + std::string(name(spec.op)) + ": " + result.error);
}

// Receives each step with its number; false drops the step.
using Edit = std::function<bool(std::size_t, mpi_gdr::Step&, std::vector<mpi_gdr::Slice>&)>;
inline mpi_gdr::SchedulePtr rewrite(const mpi_gdr::Schedule& from, const Edit& edit) {
  mpi_gdr::ScheduleWriter writer(from);
  std::size_t number = 0;
  return mpi_gdr::rewrite(writer, from, [&](mpi_gdr::Step step, std::vector<mpi_gdr::Slice> sources) {
    if (edit(number++, step, sources)) writer.step(step, sources);
  });
}

}  // namespace unit
