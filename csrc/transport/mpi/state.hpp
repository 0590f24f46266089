// Private to transport/mpi: what start() sets up and the others read, and how error codes of MPI calls become
// Error. Default visibility: for transport/mpi/raw, too.
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
  void* handle = nullptr;  // dlopen's, of the MPI
  MPI_Comm base = MPI_COMM_NULL;
  int rank = -1, size = -1;  // also before there are members
  mutable std::mutex members_mutex;
  std::shared_ptr<const Membership> members;  // replaced whole, with members_mutex held
  PmiServer* pmi = nullptr;                   // that started this MPI; null: a launcher did
  std::string bootstrap;
  pid_t pid = 0;  // that initialised MPI: a forked child has another
  bool started_by_us = false;
  bool under_launcher = false;
  std::chrono::milliseconds finalize_timeout{0};
  IdleProgress idle;
  std::atomic<bool> ready{false};             // release: everything above is set
  std::atomic<const char*> failure{nullptr};  // Network::mark_failed()
};

// Both of this process. Leaked: they outlive atexit handlers.
[[gnu::visibility("default")]] State& state();
MpiNetwork& network();

// Collective over all ranks, once MPI is initialised: State::base, sorted by torch's ranks, and its members.
void find_members(const NetworkOptions& options);

// Collective over the ranks of a node, when nothing else is on its way: MPI uses the kernel's copy
// (process_vm_readv) between them only if all may read each other's memory, or the user wants it.
void settle_kernel_copies(MPI_Comm node);

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
