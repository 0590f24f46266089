// The progress role: its holder starts operations, polls the transport, runs local steps and checks
// deadlines, a pass at a time. The role is a mutex that is only tried, so that no thread waits for one that
// may be stuck in the MPI library. At most one thread is inside a transport at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "common/traffic.hpp"
#include "engine/endings.hpp"
#include "engine/engine_options.hpp"
#include "engine/outstanding.hpp"

namespace mpi_gdr {

class Progress {
 public:
  // All outlive it.
  Progress(const EngineOptions& options, Outstanding& outstanding, Endings& endings)
      : options_(options), outstanding_(outstanding), endings_(endings) {}

  // --- any thread ---
  // One pass if the role is free: `awaited` first and, if that ends, not always the others. True if something
  // moved. `ended`: receives what Endings::take_unreleased() gives. If nothing moved, and `awaited` (null:
  // any) is all that runs and waits for one flag, `bell` is that, and `memory` keeps it valid.
  bool try_pass(std::vector<OperationPtr>& ended, const Operation* awaited, Doorbell* bell,
                std::shared_ptr<const shm::NodeMemory>* memory);
  // The first steps of this operation, if the role is free and this is all there is to begin: else false.
  bool try_begin(const Operation& operation, std::vector<OperationPtr>& ended);
  // Owns the role, or nothing if it could not be had in time.
  std::unique_lock<std::mutex> take_role(std::chrono::milliseconds patience);
  // True while some thread sits in one pass for longer than `stuck_grace`.
  bool stuck() const;
  const Traffic& traffic() const { return traffic_; }
  // The operation being advanced, or the last one; null: none.
  OperationPtr current() const;

  // --- with the role ---
  // Lets go of what has ended of a group and keeps to memory, and drops the group's transport.
  void close(GroupState& group);
  // Ends what runs, without the transport's help. True if something did.
  bool end_all(const std::string& reason);

 private:
  // Says since when a thread is inside the transport, whatever way it leaves.
  class InTransport {
   public:
    InTransport(std::atomic<std::int64_t>& began, Clock::time_point now) : began_(began) {
      began_.store(now.time_since_epoch().count(), std::memory_order_release);
    }
    ~InTransport() { began_.store(0, std::memory_order_release); }

   private:
    std::atomic<std::int64_t>& began_;
  };

  // All with the role. `only`: see try_begin().
  bool pass(const Operation* only, const Operation* awaited = nullptr);
  bool take_in(Clock::time_point now, const Operation* only);
  void start(GroupState& group, Clock::time_point now);
  bool poll_active(Clock::time_point now, const Operation* awaited);
  void note_earliest_deadline();  // of active_
  bool advance(const OperationPtr& operation, Clock::time_point now);
  bool advance_parts(Operation& operation);  // and notes what they have chosen
  bool was_complete(Operation& operation);
  // Ends operations that wait for their turn and are overdue.
  void end_overdue(Clock::time_point now);
  // When a pass could not go on for want of memory: ends everything that is outstanding.
  void fail_for_want_of_memory() noexcept;
  void set_current(const OperationPtr& operation);

  const EngineOptions& options_;
  Outstanding& outstanding_;
  Endings& endings_;

  std::mutex role_;
  // With the role:
  std::vector<OperationPtr> active_, arrived_, started_;
  Traffic traffic_;
  std::set<std::pair<Clock::time_point, OperationPtr>> queued_;  // not started yet, by deadline
  int brief_ = 0;                                                // passes since one polled all of active_

  // Written by the role holder, read by any thread.
  std::atomic<std::int64_t> pass_began_{0};  // Clock ticks; 0: nobody is in a pass
  mutable std::mutex current_mutex_;
  OperationPtr current_;
};

}  // namespace mpi_gdr
