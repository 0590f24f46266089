// The progress role: its holder, one thread at a time, starts operations, polls the transport, runs local
// steps and checks deadlines. Its mutex is only tried, since the holder may be stuck in the MPI library.
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
  // References outlive it.
  Progress(const EngineOptions& options, Outstanding& outstanding, Endings& endings)
      : options_(options), outstanding_(outstanding), endings_(endings) {}

  // --- any thread ---
  // One pass if the role is free: `awaited` first; if it ends, the others may wait for a later pass. True if
  // anything moved. Fills `ended` by Endings::take_unreleased(). If `awaited` (null: any) runs as the only
  // operation and waits for one flag, sets `bell` to this flag and `memory` to the flag's owner.
  bool try_pass(std::vector<OperationPtr>& ended, const Operation* awaited, Doorbell* bell,
                std::shared_ptr<const shm::NodeMemory>* memory);
  // Starts this operation if the role is free and nothing else is to be started; else returns false.
  bool try_begin(const Operation& operation, std::vector<OperationPtr>& ended);
  std::unique_lock<std::mutex> take_role(std::chrono::milliseconds patience);  // may own nothing
  bool stuck() const;                                  // a pass has lasted longer than `stuck_grace`
  const Traffic& traffic() const { return traffic_; }  // to be read with the role
  // The operation being advanced, or the last one that has not ended, if it calls a library; may be null.
  OperationPtr current() const;

  // --- with the role ---
  // Drops finished operations that call no library, and the group's transport.
  void close(GroupState& group);
  bool end_all(const std::string& reason);  // without the transport; false: nothing was running

 private:
  class InTransport {  // marks the time in the transport
   public:
    InTransport(std::atomic<std::int64_t>& began, Clock::time_point now) : began_(began) {
      began_.store(now.time_since_epoch().count(), std::memory_order_release);
    }
    ~InTransport() { began_.store(0, std::memory_order_release); }

   private:
    std::atomic<std::int64_t>& began_;
  };

  // With the role. `only`: see try_begin().
  bool pass(const Operation* only, const Operation* awaited = nullptr);
  bool take_in(Clock::time_point now, const Operation* only);
  void start(GroupState& group, Channel channel, Clock::time_point now);
  bool poll_active(Clock::time_point now, const Operation* awaited);
  void note_earliest_deadline();  // of active_
  bool advance(const OperationPtr& operation, Clock::time_point now);
  bool advance_parts(Operation& operation);  // and notifies observers of choices
  bool was_complete(Operation& operation);
  void end_overdue(Clock::time_point now);  // fails overdue operations that have not started
  void fail_out_of_memory() noexcept;       // fails everything outstanding
  void set_current(const OperationPtr& operation);

  const EngineOptions& options_;
  Outstanding& outstanding_;
  Endings& endings_;

  std::mutex role_;
  // With the role:
  std::vector<OperationPtr> active_, arrived_, started_;
  Traffic traffic_;
  std::set<std::pair<Clock::time_point, OperationPtr>> queued_;  // not started, by deadline
  int partial_passes_ = 0;                                       // passes since the last one that polled all

  // Written with the role, read by any thread.
  std::atomic<std::int64_t> pass_began_{0};  // ticks of Clock; 0: no pass
  mutable std::mutex current_mutex_;
  OperationPtr current_;
};

}  // namespace mpi_gdr
