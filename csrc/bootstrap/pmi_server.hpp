// An in-process PMI-1 server: it lets an MPI of the MPICH family start from a KvStore, without a launcher, or
// stands between the MPI and its launcher.
//
// One detached thread answers the MPI library of this process on one end of a socketpair; PMI_FD names the
// other end. Values that this rank puts are kept here and travel with the next barrier, which is a rendezvous
// over the store, so a get never waits. The server lives until the process ends and is never freed: MPICH
// sends its last command from an atexit handler of libc, after Python and all static destructors of others
// may be gone.
//
// The client end is never closed by us (MPICH 4 closes it itself, MPICH 5 does not); both ends are
// close-on-exec. A forked child gets a socket of its own in its place and so never speaks on its parent's.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "bootstrap/rendezvous.hpp"

namespace mpi_gdr {

struct PmiServerOptions {
  int rank = 0;
  int size = 1;
  // The socket of this MPI's launcher; -1: none, and the members below are used. All is passed on, but for a
  // smaller limit of values: Slurm reads at most 1024 bytes of a command, and announces 1024 for the value
  // alone. MPICH cuts its addresses at what is announced, and a longer command lets MPI_Init hang.
  int launcher = -1;
  std::shared_ptr<KvStore> store;
  std::string prefix;     // of all store keys: unique per job and attempt
  std::string kvsname;    // unique per job on its nodes: MPICH names shared memory after it
  std::string abort_key;  // set when MPI_Abort is called inside MPI_Init on some rank
  std::optional<std::string> process_mapping;
  Deadline init_deadline;                   // for barriers inside MPI_Init: beyond it the process ends
  std::chrono::milliseconds later_timeout;  // for those of MPI_Finalize: beyond it they are answered as done
};

class PmiServer {
 public:
  // Starts the thread. Throws System. One per process.
  static PmiServer& start(PmiServerOptions options);

  int client_fd() const { return client_; }
  // MPI_Init has returned: from now on a barrier that a dead peer or a dead store makes impossible is
  // answered as done, because MPICH would end the process over it in MPI_Finalize.
  void init_finished() { in_init_.store(false, std::memory_order_release); }
  // From now on, MPI_Abort tells the other ranks by this call, in place of the store. Any thread.
  void on_abort(std::function<void(const std::string&)> announce);

 private:
  PmiServer(PmiServerOptions options, int client, int server);
  void serve();
  void pass_on();
  std::string answer(const std::string& line);
  void barrier();
  void watch_for_abort();
  // Exit handler: without it the process could end with code 0 before the line of MPI_Abort is read.
  void finish_at_exit();
  [[noreturn]] void abort_job(const std::string& line);

  const PmiServerOptions options_;
  const int client_, server_;
  const pid_t pid_;  // a forked child inherits the exit handler, but not the thread
  std::mutex busy_;  // held while a command is carried out
  std::mutex announce_mutex_;
  std::function<void(const std::string&)> announce_;  // under announce_mutex_
  std::map<std::string, std::string> values_;
  std::vector<std::string> fresh_;  // key, value, key, value: put since the last barrier
  int barriers_ = 0;
  std::atomic<bool> in_init_{true};
};

// In forked children, replaces descriptor `fd` (a PMI connection) by a private socket that holds the answer
// to "finalize", while it is the same socket as now. Of several calls in a process the last one counts.
void shield_pmi_from_forks(int fd);

}  // namespace mpi_gdr
