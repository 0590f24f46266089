#include "collectives/planner.hpp"

#include "common/staging.hpp"
#include "schedule/through_host.hpp"

namespace mpigdr {
namespace {

constexpr std::size_t kMostCached =
    1024;  // plans; a job that varies its sizes without end must not grow for ever

constexpr std::size_t kMostSteps = std::size_t{1} << 21;  // of all of them, some 100 bytes each

// Of the calling thread, until its next call: the key of a plan that there is costs no allocation. `how`:
// what else the plan depends on.
template <typename... How>
std::string& key_of(const CollectiveSpec& spec, How... how) {
  thread_local std::string key;
  using Word = std::uint64_t;
  const Word fields[] = {Word(spec.collective), Word(spec.dtype), Word(spec.op), Word(spec.rank),
                         Word(spec.size),       Word(spec.root),  spec.count,    Word(how)...};
  key.assign(reinterpret_cast<const char*>(fields), sizeof fields);
  for (const std::uint64_t count : spec.counts)
    key.append(reinterpret_cast<const char*>(&count), sizeof count);
  return key;
}

// With this topology, if there is one, in `room`; else no copy: every all_to_all comes here.
const CollectiveSpec& with_topology(const CollectiveSpec& spec,
                                    const std::shared_ptr<const Topology>& topology, CollectiveSpec& room) {
  if (!topology) return spec;
  room = spec;
  room.topology = topology;
  return room;
}

}  // namespace

Planner::Planner(const Env& env, const GroupSelection& group)
    : selection_(load_selection(env, group)), adapts_(env.adapt && !selection_.named) {
  tuning_.chunk_bytes = env.chunk_bytes;
  tuning_.max_lanes = env.lanes;
  tuning_.staging_bytes = kHostStagingBytes;
  // A device is no faster for pieces that fit into a cache.
  device_tuning_ = tuning_;
  device_tuning_.staging_bytes = kDeviceStagingBytes;
  device_tuning_.in_place = true;
  device_tuning_.no_messages = true;
}

Plan Planner::plan(const CollectiveSpec& spec, bool native, Reach reach,
                   const std::shared_ptr<const Topology>& topology, bool by_host) {
  const auto made = [&] {
    return build(choice(spec, native, reach, topology), spec, reach, topology, by_host);
  };
  if (spec.collective == Collective::AllToAll) return made();
  std::string& key = key_of(spec, native, reach, by_host, topology ? topology->id() : 0);
  {
    std::lock_guard lock(mutex_);
    if (auto found = cache_.find(key); found != cache_.end()) return found->second;
  }
  Plan plan = made();
  std::lock_guard lock(mutex_);
  std::size_t steps = 0;
  for (const Schedule* s = plan.schedule.get(); s; s = s->staged.get()) steps += s->steps.size();
  make_room(steps);
  return cache_.emplace(key, std::move(plan)).first->second;
}

Plan Planner::build(const SelectionRow& chosen, const CollectiveSpec& spec, Reach reach,
                    const std::shared_ptr<const Topology>& topology, bool by_host) const {
  Plan plan{chosen.algorithm, nullptr};
  const bool devices = reach == Reach::Devices;
  Tuning tuning = devices ? device_tuning_ : tuning_;
  tuning.leaders = chosen.leaders;
  tuning.node_shares = reach == Reach::Nodes;
  // Devices do not reach each other's tensors, only what they share.
  if (devices && plan.algorithm->name == std::string_view("adaptive"))
    plan.algorithm = find_algorithm(spec.collective, "staged");
  CollectiveSpec room;
  if (!plan.algorithm->native())
    plan.schedule = plan.algorithm->build(with_topology(spec, topology, room), tuning);
  if (plan.schedule && by_host && !plan.schedule->shared) plan.schedule = through_host(*plan.schedule);
  return plan;
}

SchedulePtr Planner::counts(const Topology& topology, int rank, Reach reach) {
  Tuning tuning = tuning_;
  tuning.node_shares = reach == Reach::Nodes;
  return counts_of_node(topology, rank, tuning);
}

std::shared_ptr<const Phases> Planner::phases(const CollectiveSpec& spec, const Topology& topology,
                                              int leaders, bool by_host) {
  std::string& key = key_of(spec, leaders, by_host, topology.id());
  {
    std::lock_guard lock(mutex_);
    if (const auto found = phases_.find(key); found != phases_.end()) return found->second;
  }
  Tuning between = tuning_;
  between.leaders = leaders;
  Phases made = phases_of(spec, topology, device_tuning_, between);
  std::size_t steps = 0;
  for (Phase& phase : made.phases) {
    if (by_host && !phase.inside) phase.schedule = through_host(*phase.schedule);
    steps += phase.schedule->steps.size();
  }
  auto kept = std::make_shared<const Phases>(std::move(made));
  std::lock_guard lock(mutex_);
  make_room(steps);
  return phases_.emplace(key, std::move(kept)).first->second;
}

void Planner::make_room(std::size_t steps) {
  if (cache_.size() + phases_.size() >= kMostCached || cached_steps_ + steps > kMostSteps) {
    cache_.clear();
    phases_.clear();
    cached_steps_ = 0;
  }
  cached_steps_ += steps;
}

const SelectionRow& Planner::choice(const CollectiveSpec& spec, bool native, Reach reach,
                                    const std::shared_ptr<const Topology>& topology) const {
  CollectiveSpec room;
  return select_row(with_topology(spec, topology, room), native, reach, selection_.table);
}

}  // namespace mpigdr
