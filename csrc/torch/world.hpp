// The process's one engine, its MPI, and how groups come into being. Leaked: it outlives every atexit
// handler.
//
// Threads: groups may be created by several threads at once, in any order; nothing is locked while a peer is
// waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "engine/engine.hpp"
#include "engine/flight_signal.hpp"
#include "torch/liveness.hpp"

namespace mpigdr {
struct Member;
}
namespace mpigdr::mpi {
class GroupTransport;
}

namespace mpigdr::torch_binding {

// What the creator is told about the job besides c10d's options: needed where the first group that uses this
// backend is not the default group.
struct JobInfo {
  int rank = -1, size = -1;               // -1: the group is the default group
  c10::intrusive_ptr<c10d::Store> store;  // the default group's, if there is one already
};

class World {
 public:
  static World& get();

  struct NewGroup {
    std::shared_ptr<Group> group;
    std::vector<int> world_ranks;              // of the members
    mpi::GroupTransport* transport = nullptr;  // owned by the group, valid until it is closed
    bool served = false;                       // tensors of a device stay there, on all members
    bool gpu_aware = false;                    // its transport takes addresses of a device, on all members
  };
  // Initialises MPI at the first call. Blocks until all members have come; throws Timeout naming those that
  // did not, and Remote on all ranks if what chooses their algorithms differs. `selection`:
  // Options::selection.
  NewGroup make_group(const c10d::DistributedBackendOptions& options, const JobInfo& job,
                      std::chrono::milliseconds timeout, const std::string& selection = "");

  Engine& engine();
  // The flight log; null if it is off or no group was made yet.
  std::shared_ptr<FlightWriter> flight();

  // MPI under its launcher, without any store; used to agree on MASTER_ADDR before there is one.
  void initialize_from_launcher(int rank, int size, std::chrono::milliseconds timeout);

  // An operation failed: MPI_Finalize would wait for peers that may be gone.
  void note_failure();

  // The group is closed; if it was well, its communicators are freed.
  void group_closed(const Group& group);
  // The others are told, when this process ends, how far it took part.
  void group_aborted(const Group& group) { liveness_.closed(group); }

  // Throws Aborted in a forked child: MPI and our threads exist in the parent only.
  void check_process() const;

  // Tells the other ranks, stops the engine, then MPI. For Python's atexit; idempotent; never throws; ends
  // within seconds unless it waits for ranks that are well. `failure`: the uncaught exception that ends the
  // program, or "".
  void finalize(const std::string& failure) noexcept;

 private:
  World();
  std::string key_prefix() const;  // of the keys of this generation; with mutex_ held
  void begin_generation(c10::intrusive_ptr<c10d::Store> store);
  // `begins_generation`: of a default group, or the first one; its ranks may stand in another order.
  void start_mpi(int rank, int size, std::chrono::milliseconds timeout, bool begins_generation);
  // Of the process, made at the first call.
  std::shared_ptr<Trace> trace(int rank, int size);
  void write_trace(const char* reason) noexcept;
  void start_engine(const std::vector<Member>& members, int rank, int size);
  void print_summary() const;

  std::mutex mutex_;  // all below but the atomics; never held while waiting for a peer
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<FlightSignal> flight_signal_;
  std::shared_ptr<Trace> trace_;  // made before the engine; null: none
  // Of the current default group. Kept, because on rank 0 it is the server that all others still need at
  // exit.
  std::shared_ptr<KvStore> store_;
  int generation_ = -1;                         // how many default groups this process has had
  std::map<std::vector<int>, int> times_made_;  // per member list, within the generation
  std::atomic<bool> finalized_{false};
  std::atomic<int> open_groups_{0};
  Liveness liveness_;
};

}  // namespace mpigdr::torch_binding
