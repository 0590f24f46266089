// In-process PMI-1 server: starts an MPICH-family MPI from a KvStore, or relays between MPI and its launcher.
// A detached thread serves one end of a socketpair; PMI_FD names the other, which only MPI closes, if at all.
// Values are published at the next barrier, a rendezvous over the store. Never freed: MPICH sends its last
// command from an atexit handler, after static destructors.
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
  // The launcher's socket; all is relayed, with a lower value limit: Slurm announces 1024 bytes but reads
  // 1024 of the whole command, and MPI_Init would hang. -1: none; the members below are used.
  int launcher = -1;
  std::shared_ptr<KvStore> store;
  std::string prefix;     // of all store keys; unique per job and attempt
  std::string kvsname;    // unique per job on its nodes: MPICH names shared memory after it
  std::string abort_key;  // set when a rank calls MPI_Abort inside MPI_Init
  std::optional<std::string> process_mapping;
  Deadline init_deadline;                   // for barriers inside MPI_Init; then the process ends
  std::chrono::milliseconds later_timeout;  // for barriers in MPI_Finalize; then they are answered as done
};

class PmiServer {
 public:
  // Starts the thread. Throws System. One per process.
  static PmiServer& start(PmiServerOptions options);

  int client_fd() const { return client_; }
  // Called after MPI_Init. Later failed barriers are answered as done: on an error MPI_Finalize would end the
  // process.
  void init_finished() { in_init_.store(false, std::memory_order_release); }
  // From this call on, MPI_Abort calls `announce` to notify the other ranks, not the store. Any thread.
  void on_abort(std::function<void(const std::string&)> announce);

 private:
  PmiServer(PmiServerOptions options, int client, int server);
  void serve();
  void relay();
  std::string answer(const std::string& line);
  void barrier();
  void watch_for_abort();
  // Exit handler. Waits until all commands are read: the process could otherwise end before MPI_Abort's.
  void finish_at_exit();
  [[noreturn]] void abort_job(const std::string& line);

  const PmiServerOptions options_;
  const int client_, server_;
  const pid_t pid_;  // a forked child inherits the exit handler but not the thread
  std::mutex busy_;  // held while a command is executed
  std::mutex announce_mutex_;
  std::function<void(const std::string&)> announce_;  // under announce_mutex_
  std::map<std::string, std::string> values_;
  std::vector<std::string> fresh_;  // key, value, key, value, ...: put since the last barrier
  int barriers_ = 0;
  std::atomic<bool> in_init_{true};
};

// In forked children, replaces the PMI socket `fd` by one that answers "finalize". The last call counts.
void shield_pmi_from_forks(int fd);

}  // namespace mpi_gdr
