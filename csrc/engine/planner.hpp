// From a collective to what runs it: the algorithm (user's choice, else the table's) and its schedule,
// cached: a training job repeats the same few collectives on every step. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "collectives/collectives.hpp"
#include "common/env.hpp"
#include "transport/transport.hpp"

namespace mpigdr {

struct Plan {
  const Algorithm* algorithm = nullptr;
  SchedulePtr schedule;  // null: run by the library ("native")
};

class Planner {
 public:
  // Throws InvalidUsage, naming the variable, if `env` asks for an algorithm that does not exist.
  explicit Planner(const Env& env);

  // A user's choice of "native" holds where the library has the collective with our semantics; elsewhere the
  // table chooses among ours. `allow_native` false: as if the library had none. `reach` of the group's ranks
  // into each other's memory: so with the algorithms that need it.
  Plan plan(const CollectiveSpec& spec, const Transport& transport, bool allow_native = true,
            Reach reach = Reach::None);

 private:
  const Algorithm* forced_[kCollectiveCount] = {};
  Tuning tuning_;
  std::mutex mutex_;
  std::size_t cached_steps_ = 0;
  std::unordered_map<std::string, Plan> cache_;  // by the bytes of the spec's fields
};

}  // namespace mpigdr
