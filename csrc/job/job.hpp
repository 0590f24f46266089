// This process's part in the job. Several threads may create groups at once, in any order; while waiting for
// a peer, none holds a lock except `starting_`.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "collectives/selection_source.hpp"
#include "diagnostics/flight_signal.hpp"
#include "engine/engine.hpp"
#include "engine/group.hpp"
#include "job/choice_cache.hpp"
#include "job/liveness.hpp"
#include "job/member.hpp"
#include "transport/network.hpp"

namespace mpi_gdr {

struct JobOptions {
  std::string version;    // of this library, for files
  std::string built_for;  // "torch 2.13.0", for the log
  // Called while a thread waits for other ranks; may throw to stop that (Ctrl-C).
  std::function<void()> poll;
};

struct Accelerator {
  bool present = false;
  bool served = false;  // its tensors are not copied to the host
};

struct GroupRequest {
  std::string name;
  int rank = 0;              // of this process in the group
  std::vector<int> members;  // ranks of the job, in the order of their ranks in the group
  int job_rank = 0;          // of this process
  int job_size = 1;
  bool is_default = false;  // all ranks of the job; begins a generation
  // The job's store. Called if this request begins a generation: the default group or the first one.
  std::function<std::unique_ptr<KvStore>()> store;
  std::chrono::milliseconds timeout{0};
  GroupSelection selection;
  // May throw, so it is called before the members meet; empty: no accelerator.
  std::function<Accelerator()> accelerator;
};

class Job {
 public:
  struct NewGroup {
    std::shared_ptr<Group> group;
    std::vector<int> members;  // ranks of the job
    bool served = false;       // device tensors are not copied to the host, on all members
    bool gpu_aware = false;    // its transport takes device addresses, on all members
  };

  Job(Network& network, JobOptions options);
  // Without finalize() the other ranks are not notified. No thread may be in a call of the job.
  ~Job();

  // Starts the network at the first call; blocks until all members arrive. Throws Timeout naming absent ones,
  // or Remote on all ranks if settings that choose algorithms differ.
  NewGroup make_group(const GroupRequest& request);

  Engine& engine();
  // Null if it is off or no group was created yet.
  std::shared_ptr<FlightWriter> flight();
  std::shared_ptr<const Membership> membership() const { return network_.membership(); }

  // Starts the network under its launcher without a store, to agree on MASTER_ADDR.
  void start_from_launcher(int rank, int size, std::chrono::milliseconds timeout);

  // Called after a failed operation, so that finalize() does not wait for peers that may be gone.
  void note_failure(const char* why) { network_.mark_failed(why); }

  void group_closed(const Group& group);
  // Records the group for the announcement at this process's end.
  void group_aborted(const Group& group) { liveness_.closed(group); }

  // Throws Aborted in a forked child: the network and our threads exist in the parent only.
  void check_process() const;

  // Notifies the other ranks, then stops the engine and the network. For an exit handler; idempotent; may
  // wait for live ranks, else takes seconds. `failure`: the exception that ends the program, or "".
  void finalize(const std::string& failure) noexcept;

 private:
  std::string key_prefix() const;  // of this generation's keys; with mutex_ held
  // Held while the network is started or a generation begins; polls while waiting for it. Throws Timeout.
  std::unique_lock<std::mutex> lock_start(std::chrono::milliseconds timeout);
  void join_generation(const GroupRequest& request);
  void begin_generation(const GroupRequest& request);
  void start_network(int rank, int size, std::chrono::milliseconds timeout, bool begins_generation);
  struct Meeting {
    std::string key;
    int times = 0;  // earlier meetings of the same members
    std::vector<Member> members;
    MeasuredChoices choices;
    std::string choices_key;                        // on rank 0 of a group that measures
    std::shared_ptr<const shm::NodeMemory> memory;  // of the ranks on this node; null: not shared
  };
  Meeting meet(const GroupRequest& request, const Planner& planner);
  std::unique_ptr<Transport> connect(const GroupRequest& request, const Meeting& meeting);
  GroupOptions options_of(const GroupRequest& request, const Meeting& meeting);
  void start_engine(const std::vector<Member>& members, int rank, int size);
  void remember_choices(const Group& group);
  // The process's trace, created by the first call.
  std::shared_ptr<Trace> trace(int rank, int size);
  void write_trace(const char* reason) noexcept;
  void print_summary() const;

  Network& network_;
  const JobOptions options_;
  Liveness liveness_;    // destroyed after the engine, which uses it
  std::mutex starting_;  // lock_start()
  bool begun_ = false;   // a generation has begun without an error; guarded by starting_
  std::mutex mutex_;     // guards all below but the atomics; not held while waiting for a peer
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<FlightWriter> flight_;  // null: off
  std::unique_ptr<FlightSignal> flight_signal_;
  std::shared_ptr<Trace> trace_;  // created before the engine; null: none
  // Kept: on rank 0 it is the server that all ranks need until they exit.
  std::shared_ptr<KvStore> store_;
  int generation_ = -1;                         // counted from 0
  std::map<std::vector<int>, int> times_made_;  // by members, within the generation
  std::atomic<bool> finalized_{false};
  std::atomic<int> open_groups_{0};
};

}  // namespace mpi_gdr
