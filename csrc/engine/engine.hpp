// Carries operations to their end. One per process (unit tests make one per emulated rank).
//
// Progress (progress.hpp) holds the role in which operations advance, Endings (endings.hpp) how they end;
// Engine decides which thread takes the role when. Issuers take it to begin what calls no library, then
// waiters (a blocking collective costs no hand-off), and the progress thread for operations without one.
//
//   issuing threads --Outstanding (mutex, short)--> role holder: waiting -> active -> finished
//        finished --> waiters (atomic flag)
//                 --> completer threads
//
// The caller that created it, the progress thread, and each waiter own it: a thread that never returns from
// the transport is left behind with a valid engine. All public members are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backoff.hpp"
#include "engine/completer.hpp"
#include "engine/endings.hpp"
#include "engine/engine_options.hpp"
#include "engine/outstanding.hpp"
#include "engine/progress.hpp"
#include "engine/progress_thread.hpp"
#include "engine/stuck_watch.hpp"
#include "execution/scratch_pool.hpp"

namespace mpi_gdr {

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

  // The operation is consumed through a Future: the progress thread must not nap.
  void expect(Operation& operation);

  // Transports are given this device's memory from now on. Any thread.
  void serve(Device& device) { progress_thread_.serve(device); }

  // Until all that the group has outstanding, and what others issue meanwhile, has ended: each at its
  // deadline at the latest, also if a thread is stuck inside the transport.
  void wait_all(GroupState& group);

  // Ends the group, without the transport: its running and later operations throw Aborted with `reason`.
  void abort(GroupState& group, const std::string& reason, ErrorCode code = ErrorCode::Aborted);

  // As abort() for all of them, because a member of each is gone: a thread that is then inside the transport
  // for longer than `stuck_grace` is reported with `reason`, before a deadline.
  void lose(const std::vector<GroupState*>& groups, const std::string& reason);

  // Runs what is outstanding to its end (at most until its deadline), then destroys the group's transport. Of
  // a failed group the transport is leaked: peers may still write to memory it knows.
  void close(GroupState& group);

  // Runs this on a completer thread, which may take the GIL and may block.
  void later(std::function<void()> callback);

  // Until nothing is outstanding in the background, for so long at most. Does not touch the transport.
  void settle(std::chrono::milliseconds patience) const;

  // Stops the threads. Outstanding operations fail with Aborted. False if MPI must not be called any more: a
  // thread is left behind in the transport, or something was outstanding. Idempotent.
  bool shutdown();
  // After shutdown(): a thread is inside the transport and may stay there.
  bool left_behind() const { return left_behind_; }

  // The first sequence number of this channel that has not ended in the background; the next one if none.
  std::uint64_t first_unfinished(const GroupState& group, Channel channel) const {
    return outstanding_.first_sequence(group, channel, group.sequence(channel));
  }

  // Progress::stuck(): MPI must then not be called any more.
  bool stuck() const { return progress_.stuck(); }

  const Observers& observers() const { return endings_.observers(); }

  // --- for Group ---
  // Takes an operation in. Then carry(), without a lock of a group, sees to one in the background: if
  // `begin_here`, the calling thread makes its first steps, unless another one holds the role.
  void submit(const OperationPtr& operation) { outstanding_.submit(operation); }
  void carry(const OperationPtr& operation, bool begin_here);
  // Who releases the buffers of what ended in a pass without a waiter: the thread that made the pass, after
  // it, or a completer thread. ByCaller: a waiter, beside which the progress thread progresses meanwhile.
  enum class Releases { Here, ByCaller, Completer };
  // Progress::try_pass(), then the release.
  bool try_pass(Releases releases, const Operation* awaited = nullptr, Doorbell* bell = nullptr,
                std::shared_ptr<const shm::NodeMemory>* memory = nullptr);
  std::shared_ptr<ScratchPool> scratch() { return scratch_; }
  const Traffic& traffic() const { return progress_.traffic(); }

 private:
  explicit Engine(EngineOptions options);
  // Without the role: what a pass has ended.
  void release(std::vector<OperationPtr>& ended, Releases releases) noexcept;
  // For a waiter: ends the operation although the role may be stuck.
  void give_up(Operation& operation, ErrorCode code);

  const EngineOptions options_;
  const std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
  Completer completer_;
  Outstanding outstanding_;
  Endings endings_{options_, outstanding_, completer_};
  Progress progress_{options_, outstanding_, endings_};
  Crowding crowding_{options_.oversubscribed};
  std::atomic<int> callers_{0};
  bool left_behind_ = false, ended_well_ = false;  // what shutdown() found
  ProgressThread progress_thread_{
      {outstanding_, callers_, crowding_,
       [this](auto& bell, auto& memory) { return try_pass(Releases::Completer, nullptr, &bell, &memory); }},
      options_.longest_nap};
  StuckWatch watch_{options_, progress_, outstanding_, endings_.observers()};
};

}  // namespace mpi_gdr
