// Carries operations to their end. One per process (unit tests make one per emulated rank).
// engine.cpp: how they are carried; engine_failures.cpp: how they fail; engine_shutdown.cpp: the end of a
// group and of the engine.
//
// The progress role. Whoever holds `role_` runs passes: it starts operations, polls the transport, runs local
// steps and checks deadlines. It is taken with try_lock only, so that nobody ever waits for a thread that may
// be stuck in the MPI library. Issuers take it to begin what calls no library, waiters next (a blocking
// collective costs no hand-off); the progress thread takes it for operations that nobody waits for; at most
// one thread is inside a transport at any time.
//
//   issuing threads --intake (mutex, short)--> role holder: waiting -> active -> finished --> waiters (atomic
//   flag)
//                                                                                       \--> completer
//                                                                                       threads
//
// Ownership. Whoever is inside the engine holds it: the caller that created it, the progress thread, and each
// waiter while it waits. A thread that never comes back from the transport is left behind with an engine that
// is still there.
//
// All public members are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "engine/backoff.hpp"
#include "engine/completer.hpp"
#include "engine/group_state.hpp"
#include "engine/operation.hpp"
#include "engine/outstanding.hpp"
#include "engine/progress_thread.hpp"
#include "engine/stuck_watch.hpp"
#include "execution/scratch_pool.hpp"

namespace mpigdr {

struct EngineOptions {
  bool oversubscribed = false;  // more ranks than cores on this node: give the core away at once when idle
  std::chrono::microseconds longest_nap{200};
  // How long past a deadline a thread may sit in one call of the transport before `on_stuck` is told.
  std::chrono::milliseconds stuck_grace{3000};
  std::function<void(const std::string&)> on_stuck;  // default: report and end the process
  std::vector<std::shared_ptr<Observer>> observers;
  // What is known of lost members of a group, or "": asked when the transport reports an error, since a
  // library says which of its calls failed, but not that the peer is dead. Called with the progress role.
  std::function<std::string(const GroupState&)> explain;
  // Which member may be stopped or cut off, or "": asked when an operation has timed out, as above.
  std::function<std::string(const GroupState&)> quiet;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // The last copy of the result that goes calls shutdown().
  static std::shared_ptr<Engine> create(EngineOptions options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Makes progress until `operation` is finished; throws its error. At its deadline, or `patience` from now
  // if that comes first, the operation and its group fail with Timeout. Releases the operation's buffers on
  // success. `interrupt` is asked now and then, on this thread: an exception aborts the group and is thrown.
  using Interrupt = std::exception_ptr (*)();
  void wait(Operation& operation, std::optional<std::chrono::nanoseconds> patience = {},
            Interrupt interrupt = nullptr);

  // Somebody will hear of this operation otherwise than by wait() (a Future): the progress thread shall not
  // nap.
  void expect(Operation& operation);

  // Transports are given this device's memory from now on. Any thread.
  void serve(Device& device) { progress_thread_.serve(device); }

  // Until all that the group has outstanding, and what others issue meanwhile, has ended, well or not: each
  // at its deadline at the latest, also if a thread is stuck inside the transport.
  void wait_all(GroupState& group);

  // Ends the group: its running and later operations throw Aborted with `reason`, Futures included. Does not
  // touch the transport, and does not wait for a thread that is inside it.
  void abort(GroupState& group, const std::string& reason);

  // As abort() for all of them at once, because a member of each is gone for good: a thread that is then
  // stuck inside the transport for longer than `stuck_grace` is reported with `reason`, without waiting for a
  // deadline.
  void lose(const std::vector<GroupState*>& groups, const std::string& reason);

  // Runs what is outstanding to its end (at most until its deadline), then destroys the group's transport. Of
  // a failed group the transport is leaked: peers may still write to memory it knows.
  void close(GroupState& group);

  // Stops the threads. Operations still outstanding fail with Aborted, without the transport's help. False if
  // MPI must not be called any more: a thread is still inside the transport and is left behind, or something
  // was outstanding. Idempotent.
  bool shutdown();
  // After shutdown(): a thread is inside the transport and may stay there.
  bool left_behind() const { return left_behind_; }

  // The first sequence number of this channel that no operation has come to its end with: the next one, or
  // that of an operation that is still running in the background.
  std::uint64_t first_unfinished(const GroupState& group, Channel channel) const {
    return outstanding_.first_sequence(group, channel, group.sequence(channel));
  }

  // True while some thread sits in one pass for longer than `stuck_grace`: MPI must then not be called any
  // more.
  bool stuck() const;

  const Observers& observers() const { return observers_; }

  // --- for Group and the threads of the engine ---
  // Takes an operation in. Then carry() sees to it that one in the background goes on: if `begin_here`, its
  // first steps are made on the calling thread, unless another one is inside, with no lock of a group held,
  // and the progress thread may end its nap before it takes the rest over.
  void submit(const OperationPtr& operation) { outstanding_.submit(operation); }
  void carry(const OperationPtr& operation, bool begin_here);
  // Who lets go of the buffers of what ended in a pass while nobody waited for it: the thread that made the
  // pass, behind it, or, for the progress thread, a completer thread. ByCaller: who waits, and does not
  // progress meanwhile: the progress thread shall.
  enum class Releases { Here, ByCaller, Completer };
  // One pass if the role is free. True if something moved. If nothing did, and `awaited` (null: whatever) is
  // all that is under way and waits for one flag, `bell` is that, and `memory` what it stands in, for whoever
  // does not hold the operation.
  bool try_pass(Releases releases, const Operation* awaited = nullptr, Doorbell* bell = nullptr,
                std::shared_ptr<const shm::NodeMemory>* memory = nullptr);
  std::shared_ptr<ScratchPool> scratch() { return scratch_; }
  const Outstanding& outstanding() const { return outstanding_; }
  Crowding& crowding() { return crowding_; }
  // A device may wait for the progress thread: it shall not nap, unless the cores are shared.
  bool keeps_polling(Clock::time_point now) const {
    return outstanding_.on_device() > 0 && !crowding_.counted() && !crowding_.slices(now);
  }
  // And if they are, it shall nap soon: those that share its core have to get on.
  bool naps_soon(Clock::time_point now) const {
    return crowding_.slices(now) || (crowding_.counted() && outstanding_.on_device() > 0);
  }
  int callers_waiting() const { return callers_.load(std::memory_order_acquire); }

 private:
  friend class StuckWatch;

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

  explicit Engine(EngineOptions options);
  // With the role. `only`: takes this one in, if it is all there is to begin, and polls nothing; true if it
  // did.
  bool pass(const Operation* only = nullptr);
  // Without the role: what a pass has left in unreleased_.
  void release(std::vector<OperationPtr>& ended, Releases releases) noexcept;
  // Its first steps, if it is all there is to begin; false: not here.
  bool begin(const OperationPtr& operation);
  bool poll_active(Clock::time_point now);
  bool take_in(const Operation* only);
  void start(GroupState& group);
  bool advance(const OperationPtr& operation, Clock::time_point now);
  enum class Waiting { ForPeers, ForItsTurn, ForTheRole };
  std::string timeout_text(const Operation& operation, Waiting waiting, const std::vector<int>& peers) const;
  // The first failure of a group: the observers are told, and what they add is added to `text`. `pending`:
  // whom the operation waits for; null: not known.
  std::string tell_failure(Operation& operation, std::string text, const std::vector<int>* pending);
  // With the role: ends an operation with an error and leaks what a peer may still write to.
  void fail_operation(const OperationPtr& operation, std::exception_ptr error);
  // The error with which `operation` ends after a first failure of its group.
  std::exception_ptr fail_group(Operation& operation, ErrorCode code, std::string text,
                                Others others = Others::Unaware);
  // With the role, when a pass could not go on for want of memory: ends everything that is outstanding.
  void fail_for_want_of_memory() noexcept;
  // The error of an operation, with its name; without it where there is no memory for that.
  std::exception_ptr memory_error(const Operation& operation, std::string_view text) const noexcept;
  bool finish(Operation& operation, std::exception_ptr error) noexcept;  // false: somebody else did
  // Runs what is outstanding to its end, at most until its deadline or until a thread is stuck.
  void drain(GroupState& group);
  // True with the role held (then unlock it), false if it could not be had in time.
  bool take_role(std::chrono::milliseconds patience);
  // For a waiter: ends the operation although the role may be stuck.
  void give_up(Operation& operation, ErrorCode code);
  // Ends operations that nobody may be waiting for, of one group or of all, without the role.
  void end_background(const GroupState* group, const std::string& reason);
  // With the role: ends operations that wait for their turn and are overdue.
  void end_overdue(Clock::time_point now);
  void set_current(const OperationPtr& operation);

  const EngineOptions options_;
  const Observers observers_{options_.observers};
  // Made while there is memory.
  const std::exception_ptr no_memory_ = std::make_exception_ptr(NoMemory("no memory to go on"));
  const std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
  Completer completer_;

  Outstanding outstanding_;

  std::mutex role_;
  // With the role:
  std::vector<OperationPtr> active_, arrived_, started_;
  std::vector<OperationPtr> unreleased_;  // ended well in this pass, with buffers that no waiter takes over
  std::set<std::pair<Clock::time_point, OperationPtr>> queued_;  // not started yet, by deadline

  Crowding crowding_{options_.oversubscribed};
  std::atomic<int> callers_{0};
  bool left_behind_ = false, ended_well_ = false;  // what shutdown() found

  // Written by the role holder, read by the watch.
  std::atomic<std::int64_t> pass_began_{0};  // Clock ticks; 0: nobody is in a pass
  std::mutex current_mutex_;
  OperationPtr current_;  // the operation in whose advance() the role holder is, or was last
  std::string lost_;      // why a peer is gone; also under current_mutex_

  ProgressThread progress_thread_;
  StuckWatch watch_;
};

}  // namespace mpigdr
