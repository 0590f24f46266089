// The job as this process takes part in it: its network, its one engine, and how groups come into being.
//
// Threads: several may make groups at once, in any order; nothing is locked while a peer is waited for.
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
  std::string version;    // of this library, for the files that it writes
  std::string built_for;  // "torch 2.13.0", for the log
  // Called while a thread of the program waits for other ranks, and may throw to end that (Ctrl-C).
  std::function<void()> poll;
};

struct Accelerator {
  bool present = false;
  bool served = false;  // something serves it: its tensors stay where they are
};

struct GroupRequest {
  std::string name;
  int rank = 0;              // of this process in the group
  std::vector<int> members;  // ranks of the job, in the order of their ranks in the group
  int job_rank = 0;          // of this process
  int job_size = 1;
  bool is_default = false;  // all ranks of the job: with it a generation begins
  // Where the ranks of the job meet. Used if a generation begins, with the default group or the first one.
  std::function<std::unique_ptr<KvStore>()> store;
  std::chrono::milliseconds timeout{0};
  GroupSelection selection;
  // What this host has. Asked once the members are about to meet, because it may fail; empty: none.
  std::function<Accelerator()> accelerator;
};

class Job {
 public:
  struct NewGroup {
    std::shared_ptr<Group> group;
    std::vector<int> members;  // ranks of the job
    bool served = false;       // tensors of a device stay there, on all members
    bool gpu_aware = false;    // its transport takes addresses of a device, on all members
  };

  // Of a network that outlives it.
  Job(Network& network, JobOptions options);
  // Without finalize() the other ranks hear nothing. No thread is in a call of it.
  ~Job();

  // Starts the network at the first call. Blocks until all members have come; throws Timeout naming those
  // that did not, and Remote on all ranks if what chooses their algorithms differs.
  NewGroup make_group(const GroupRequest& request);

  Engine& engine();
  // The flight log; null if it is off or no group was made yet.
  std::shared_ptr<FlightWriter> flight();
  std::shared_ptr<const Membership> membership() const { return network_.membership(); }

  // The network under its launcher, without any store; used to agree on MASTER_ADDR before there is one.
  void start_from_launcher(int rank, int size, std::chrono::milliseconds timeout);

  // An operation failed: to end the network would wait for peers that may be gone.
  void note_failure(const char* why) { network_.mark_failed(why); }

  // The group is closed; if it was well, its communicators are freed.
  void group_closed(const Group& group);
  // The others hear, when this process ends, how far it took part.
  void group_aborted(const Group& group) { liveness_.closed(group); }

  // Throws Aborted in a forked child: the network and our threads exist in the parent only.
  void check_process() const;

  // Tells the other ranks, stops the engine, then the network. For an exit handler; idempotent; takes
  // seconds, unless it waits for ranks that are well. `failure`: the exception that ends the program, or "".
  void finalize(const std::string& failure) noexcept;

 private:
  std::string key_prefix() const;  // of the keys of this generation; with mutex_ held
  // Held by the thread that starts the network or begins a generation; the others need that, too, and poll
  // while they wait. Throws Timeout.
  std::unique_lock<std::mutex> alone(std::chrono::milliseconds timeout);
  void join_generation(const GroupRequest& request);
  // Of the request's default group, or of the first group: its ranks may stand in another order.
  void begin_generation(const GroupRequest& request);
  void start_network(int rank, int size, std::chrono::milliseconds timeout, bool begins_generation);
  // What the members of a group bring to their meeting, by rank; and the key that it had.
  struct Meeting {
    std::string key;
    int times = 0;  // how often the same members have met before
    std::vector<Member> members;
    MeasuredChoices choices;
    std::string choices_key;                        // of rank 0 of a group that measures
    std::shared_ptr<const shm::NodeMemory> memory;  // of those on this node; null: they share none
  };
  Meeting meet(const GroupRequest& request, const Planner& planner);
  std::unique_ptr<Transport> connect(const GroupRequest& request, const Meeting& meeting);
  GroupOptions options_of(const GroupRequest& request, const Meeting& meeting);
  void start_engine(const std::vector<Member>& members, int rank, int size);
  void remember_choices(const Group& group);
  // Of the process, made at the first call.
  std::shared_ptr<Trace> trace(int rank, int size);
  void write_trace(const char* reason) noexcept;
  void print_summary() const;

  Network& network_;
  const JobOptions options_;
  Liveness liveness_;    // ends after the engine, which asks it
  std::mutex starting_;  // alone()
  bool begun_ = false;   // a generation, whole; with starting_ held
  std::mutex mutex_;     // all below but the atomics; never held while waiting for a peer
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<FlightWriter> flight_;  // null: off
  std::unique_ptr<FlightSignal> flight_signal_;
  std::shared_ptr<Trace> trace_;  // made before the engine; null: none
  // Of the current default group. Kept: on rank 0 it is the server that all others still need at exit.
  std::shared_ptr<KvStore> store_;
  int generation_ = -1;                         // how many default groups this process has had
  std::map<std::vector<int>, int> times_made_;  // per member list, within the generation
  std::atomic<bool> finalized_{false};
  std::atomic<int> open_groups_{0};
};

}  // namespace mpi_gdr
