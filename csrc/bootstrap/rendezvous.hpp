// All-gather of a byte string per rank over a KvStore, with a deadline, before blocking MPI calls. Costs each
// rank a set, an add, some checks and a get; the last arrival reads all. As thread-safe as the store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "common/record.hpp"

namespace mpi_gdr {

using Deadline = std::chrono::steady_clock::time_point;

// `prefix` serves one meeting only. Element r: rank r's blob. Throws Timeout on ranks that waited, naming the
// absent ones, and on absent ranks when they arrive; InvalidUsage for a reused prefix; Remote for a bad
// signature; System if the store fails. `poll` is called while waiting, and may throw to end the wait.
std::vector<std::string> rendezvous(KvStore& store, const std::string& prefix, int rank, int size,
                                    const std::string& blob, Deadline deadline,
                                    const std::function<void()>& poll = {});

// Ranks that have not arrived at the rendezvous. Costs `size` store operations: for messages only.
std::vector<int> absent_ranks(KvStore& store, const std::string& prefix, int size);

}  // namespace mpi_gdr
