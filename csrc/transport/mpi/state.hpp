// Private to transport/mpi. Default visibility: for transport/mpi/raw too.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/pmi_server.hpp"
#include "transport/mpi/idle_progress.hpp"
#include "transport/mpi/mpi_network.hpp"

namespace mpi_gdr::mpi {

struct State {
  void* handle = nullptr;  // dlopen()'s, of the MPI library
  MPI_Comm base = MPI_COMM_NULL;
  int rank = -1, size = -1;  // also before there are members
  mutable std::mutex members_mutex;
  std::shared_ptr<const Membership> members;  // replaced as a whole, with members_mutex
  PmiServer* pmi = nullptr;                   // started this MPI; null: a launcher did
  std::string bootstrap;
  pid_t pid = 0;  // of the process that initialised MPI; a forked child has another
  bool started_by_us = false;
  bool under_launcher = false;
  std::chrono::milliseconds finalize_timeout{0};
  IdleProgress idle;
  std::atomic<bool> ready{false};             // with release order: everything above is set
  std::atomic<const char*> failure{nullptr};  // Network::mark_failed()
};

// This process's. Leaked: outlive atexit handlers.
[[gnu::visibility("default")]] State& state();
MpiNetwork& network();

// Collective over all ranks, after MPI_Init. Sets State::base, sorted by torch's ranks, and State::members.
void find_members(const NetworkOptions& options);

// Collective over the ranks of a node, while nothing else is outstanding: disables MPI's kernel copies
// between them unless all can read each other's memory, or the user has chosen.
void agree_on_kernel_copies(MPI_Comm node);

inline int rank() { return state().rank; }
inline int size() { return state().size; }

// "rank 1: MPI_Isend failed: Invalid tag". Marks the network as failed: MPI_Finalize is skipped.
[[noreturn, gnu::visibility("default")]] void raise(int code, const std::string& operation);

inline void check(int code, const char* operation) {
  if (code != MPI_SUCCESS) [[unlikely]]
    raise(code, operation);
}

// The reordered duplicate of MPI_COMM_WORLD: its rank is torch's rank. Throws before start() has succeeded.
[[gnu::visibility("default")]] MPI_Comm base_communicator();

bool mpi_is_initialized();
bool mpi_is_finalized();
[[gnu::visibility("default")]] std::string library_version();  // first line
const char* thread_level_name(int level);

}  // namespace mpi_gdr::mpi
