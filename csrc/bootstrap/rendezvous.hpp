// All-gather of one byte string per rank over a KvStore, with a deadline: what precedes every blocking MPI
// call. Costs per rank: one set, one add, a few checks, one get; the last to arrive reads all and publishes
// them as one key. Stateless; thread-safe as far as the store is (see there).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "common/record.hpp"

namespace mpi_gdr {

using Deadline = std::chrono::steady_clock::time_point;

// `prefix` names this one meeting: it must never be used twice. Element r of the result is rank r's blob.
// Throws Timeout naming the ranks that did not arrive, and then on each rank that arrives later; InvalidUsage
// if the prefix was used before, Remote if a rank's blob is not signed as the others (signed_store.hpp),
// System if the store fails. `poll` is called while this rank waits, and may throw to end that.
std::vector<std::string> rendezvous(KvStore& store, const std::string& prefix, int rank, int size,
                                    const std::string& blob, Deadline deadline,
                                    const std::function<void()>& poll = {});

// Ranks that have not arrived at the rendezvous `prefix`: `size` store operations, for messages only.
std::vector<int> absent_ranks(KvStore& store, const std::string& prefix, int size);

}  // namespace mpi_gdr
