#include "collectives/planner.hpp"

#include <algorithm>

#include "common/fnv1a.hpp"
#include "common/staging.hpp"
#include "schedule/through_host.hpp"

namespace mpi_gdr {
namespace {

constexpr std::size_t kMostCached = 1024;                 // plans: a job may vary its sizes endlessly
constexpr std::size_t kMostSteps = std::size_t{1} << 21;  // of all plans, some 100 bytes each

// `spec` with `topology`, in `room`; no copy without a topology, since every all_to_all comes here.
const CollectiveSpec& with_topology(const CollectiveSpec& spec,
                                    const std::shared_ptr<const Topology>& topology, CollectiveSpec& room) {
  if (!topology) return spec;
  room = spec;
  room.topology = topology;
  return room;
}

// Whether the node's ranks exchange their counts before the schedule is built.
bool needs_counts(const Algorithm& algorithm, const CollectiveSpec& spec, const Topology* topology) {
  return algorithm.two_level && spec.collective == Collective::AllToAll && spec.node_counts.empty() &&
         topology && topology->members(topology->node(spec.rank)).size() > 1;
}

}  // namespace

const char* Plan::name() const {
  const auto by_library = [](const Phase& phase) { return phase.calls != nullptr; };
  if (!phases || std::ranges::none_of(phases->phases, by_library)) return algorithm->name;
  return std::ranges::all_of(phases->phases, by_library) ? "nccl" : "two_level, nccl";
}

Planner::Planner(const Env& env, const GroupSelection& group)
    : selection_(load_selection(env, group)), adapts_(env.adapt && !selection_.has_user_rows) {
  tuning_.chunk_bytes = env.chunk_bytes;
  tuning_.max_lanes = env.lanes;
  tuning_.staging_bytes = kHostStagingBytes;
  // A device is no faster for pieces that fit into a cache.
  device_tuning_ = tuning_;
  device_tuning_.staging_bytes = kDeviceStagingBytes;
  device_tuning_.min_chunk_bytes = kDeviceStagingBytes;
  device_tuning_.in_place = true;
  device_tuning_.no_messages = true;
}

Plan Planner::plan(const CollectiveSpec& spec, bool native, Reach reach,
                   const std::shared_ptr<const Topology>& topology, bool by_host) {
  const SelectionRow* chosen = nullptr;
  if (spec.collective == Collective::AllToAll) {
    chosen = &choice(spec, native, reach, topology);
    if (!needs_counts(*chosen->algorithm, spec, topology.get()))
      return build(*chosen, spec, reach, topology, by_host);
  }
  using Word = std::uint64_t;
  Key key{
      {Word(spec.collective) | Word(spec.dtype) << 8 | Word(spec.op) << 16 | Word(reach) << 24 |
           Word(native) << 32 | Word(by_host) << 33,
       Word(spec.rank) << 32 | Word(spec.size), Word(spec.root), spec.count, topology ? topology->id() : 0},
      spec.counts};
  {
    std::lock_guard lock(mutex_);
    if (auto found = cache_.find(key); found != cache_.end()) return found->second;
  }
  if (!chosen) chosen = &choice(spec, native, reach, topology);
  Plan plan = build(*chosen, spec, reach, topology, by_host);
  std::size_t steps = 0;
  for (const Schedule* s = plan.schedule.get(); s; s = s->staged.get()) steps += s->steps.size();
  if (plan.phases)
    for (const Phase& phase : plan.phases->phases)
      steps += phase.calls ? phase.calls->size() : phase.schedule->steps.size();
  std::lock_guard lock(mutex_);
  if (cache_.size() >= kMostCached || cached_steps_ + steps > kMostSteps) {
    cache_.clear();
    cached_steps_ = 0;
  }
  cached_steps_ += steps;
  return cache_.emplace(std::move(key), std::move(plan)).first->second;
}

std::size_t Planner::Hash::operator()(const Key& key) const {
  Fnv1a hash;
  for (const std::uint64_t word : key.first) hash.add_word(word);
  for (const std::uint64_t count : key.second) hash.add_word(count);
  return hash.value();
}

Plan Planner::build(const SelectionRow& chosen, const CollectiveSpec& spec, Reach reach,
                    const std::shared_ptr<const Topology>& topology, bool by_host) const {
  Plan plan{.algorithm = chosen.algorithm};
  if (reach == Reach::Library) {
    plan.phases = std::make_shared<const Phases>(whole_by_library(spec));
    return plan;
  }
  if (plan.algorithm->native()) return plan;
  const auto reached = [&](const SchedulePtr& schedule) {
    return by_host && !schedule->shared ? through_host(*schedule) : schedule;
  };
  const bool devices = reach == Reach::Devices;
  Tuning tuning = devices ? device_tuning_ : tuning_;
  tuning.leaders = chosen.leaders;
  tuning.node_shares = reach == Reach::Nodes;
  if (needs_counts(*plan.algorithm, spec, topology.get())) {
    plan.then = &chosen;
    plan.schedule = counts_of_node(topology, spec.rank, tuning);
  } else if (reach >= Reach::NodesDevices && plan.algorithm->two_level && !plan.algorithm->ordered &&
             has_phases(spec, *topology)) {
    const auto kind = reach == Reach::NodesLibrary ? Phase::Kind::Library : Phase::Kind::Devices;
    Phases made = phases_of(spec, *topology, kind, device_tuning_, tuning);
    for (Phase& phase : made.phases)
      if (phase.schedule) phase.schedule = reached(phase.schedule);
    plan.phases = std::make_shared<const Phases>(std::move(made));
  } else {
    // On devices, other ranks' tensors are accessed only as originals of mirrors (schedule.hpp).
    if (devices && plan.algorithm->name == std::string_view("adaptive"))
      plan.algorithm = find_algorithm(spec.collective, "staged");
    CollectiveSpec room;
    plan.schedule = reached(plan.algorithm->build(with_topology(spec, topology, room), tuning));
  }
  return plan;
}

const SelectionRow& Planner::choice(const CollectiveSpec& spec, bool native, Reach reach,
                                    const std::shared_ptr<const Topology>& topology) const {
  CollectiveSpec room;
  return select_row(with_topology(spec, topology, room), native, reach, selection_.table);
}

}  // namespace mpi_gdr
