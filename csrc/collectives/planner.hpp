// Maps a collective to its plan, cached: a training job repeats few collectives in every step. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/phases.hpp"
#include "collectives/selection_source.hpp"
#include "common/env.hpp"
#include "common/reach.hpp"

namespace mpi_gdr {

struct Plan {
  const Algorithm* algorithm = nullptr;
  SchedulePtr schedule;                  // null: run by the library ("native"), or in phases
  std::shared_ptr<const Phases> phases;  // on devices, inside nodes of several or by NCCL; null: none
  // The schedule is that of counts_of_node(), and build() continues with this row. Else null.
  const SelectionRow* then = nullptr;

  const char* name() const;  // "ring"; with calls of NCCL "nccl", or "two_level, nccl" between them
};

class Planner {
 public:
  // Throws as load_selection().
  explicit Planner(const Env& env, const GroupSelection& group = {});

  // `native`: the library has an exact equivalent. `reach`: of the group's ranks into each other's memory.
  // `topology`: of the group, replaces the spec's. `by_host`: see through_host(). An all_to_all in two levels
  // that lacks CollectiveSpec::node_counts gets Plan::then. Other all_to_alls are not cached: their counts
  // may differ at every call, and would evict what repeats.
  Plan plan(const CollectiveSpec& spec, bool native, Reach reach = Reach::None,
            const std::shared_ptr<const Topology>& topology = nullptr, bool by_host = false);
  const SelectionRow& choice(const CollectiveSpec& spec, bool native, Reach reach,
                             const std::shared_ptr<const Topology>& topology) const;
  Bits bits() const { return selection_.table.bits(); }
  // Whether the choice between a schedule and its Schedule::staged is measured.
  bool adapts() const { return adapts_; }
  // Whether a row of the user's chooses the algorithm of this call on devices of one node.
  bool has_user_row(const CollectiveSpec& spec) const {
    // The user's rows come first.
    return selection_.table.rows(spec.collective).front().origin != kBuiltIn &&
           choice(spec, false, Reach::Devices, nullptr).origin != kBuiltIn;
  }
  // Must be equal on all ranks of a group.
  const std::vector<SharedSetting>& settings() const { return selection_.settings; }

  // Builds from this row; nothing is looked up or cached.
  Plan build(const SelectionRow& chosen, const CollectiveSpec& spec, Reach reach,
             const std::shared_ptr<const Topology>& topology, bool by_host = false) const;

 private:
  const Selection selection_;
  const bool adapts_;
  Tuning tuning_, device_tuning_;  // the latter where devices share memory
  std::mutex mutex_;
  std::size_t cached_steps_ = 0;
  using Key = std::pair<std::array<std::uint64_t, 5>, std::vector<std::uint64_t>>;  // all that chooses a plan
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  std::unordered_map<Key, Plan, Hash> cache_;
};

}  // namespace mpi_gdr
