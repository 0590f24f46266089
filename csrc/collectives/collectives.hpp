// Builders and their selection. Pure functions: no MPI, no torch, no CUDA, no state. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/reach.hpp"
#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpigdr {

using Builder = SchedulePtr (*)(const CollectiveSpec&, const Tuning&);

struct Algorithm {
  Collective collective;
  const char* name;     // "ring"
  Builder build;        // nullptr for "native": the MPI library's own collective, run by the transport
  const char* summary;  // one line for `mpi-gdr info`: cost in steps, bytes, reductions
  bool shared = false;  // only for ranks that share memory (Schedule::shared)
};

// Every algorithm of every collective. Each runs for every size >= 1 and every count.
const std::vector<Algorithm>& algorithms();

// nullptr if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// Whether ranks that reach so far into each other's memory can run it, and its schedule stays small.
bool usable(const Algorithm& algorithm, const CollectiveSpec& spec, Reach reach);

// The default choice, from what is equal on all ranks only. `native_exact` tells that the transport has a
// native collective with exactly our semantics for this spec (see DESIGN section 3).
const Algorithm& select_algorithm(const CollectiveSpec& spec, bool native_exact, Reach reach = Reach::None);

// One line of the default table for a given group size, for `mpi-gdr info`; of sums.
struct SelectionRange {
  Collective collective;
  std::uint64_t from_bytes, to_bytes;  // [from, to); to = UINT64_MAX: open
  std::string algorithm;
};
std::vector<SelectionRange> selection_table(int size, Reach reach = Reach::None);

}  // namespace mpigdr
