// The builders by name; selection_table.hpp chooses among them. Pure functions: no MPI, no torch, no CUDA, no
// state. Thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpigdr {

using Builder = SchedulePtr (*)(const CollectiveSpec&, const Tuning&);

struct Algorithm {
  Collective collective;
  const char* name;        // "ring"
  Builder build;           // nullptr for "native": the MPI library's own collective, run by the transport
  const char* summary;     // one line for `mpi-gdr info`: cost in steps, bytes, reductions
  bool shared = false;     // only for ranks that share memory (Schedule::shared)
  bool two_level = false;  // chosen only for nodes of several ranks (Topology::two_level)
};

// Every algorithm of every collective. Each runs for every size >= 1 and every count.
const std::vector<Algorithm>& algorithms();

// nullptr if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace mpigdr
