// Runs operations to their end. One per process (unit tests: one per emulated rank).
//
// Progress (progress.hpp) advances operations, Endings (endings.hpp) ends them; Engine decides which thread
// takes the progress role: an issuer, to begin operations that call no library; a waiter, which saves a
// blocking collective the hand-off; the progress thread, for operations without a waiter.
//
//   issuing threads --Outstanding (mutex, short)--> role holder: waiting -> active -> finished
//        finished --> waiters (atomic flag)
//                 --> completer threads
//
// Owned by its creator, the progress thread and each waiter: a thread that never returns from the transport
// keeps a valid engine. Public members are thread-safe, except shutdown() and left_behind().
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
  // shutdown() runs when the last copy of the result is destroyed.
  static std::shared_ptr<Engine> create(EngineOptions options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Makes progress until `operation` has finished; throws its error, or releases its buffers. At its
  // deadline, or after `patience`, the operation and its group fail with Timeout. `interrupt` is called about
  // every 200 ms on this thread: an exception it returns aborts the group and is thrown.
  using Interrupt = std::exception_ptr (*)();
  void wait(Operation& operation, std::optional<std::chrono::nanoseconds> patience = {},
            Interrupt interrupt = nullptr);

  // No caller will wait for it (Future, polling): the progress thread must not leave it to one.
  void expect(Operation& operation);

  // From now on transports are given this device's memory.
  void serve(Device& device) { progress_thread_.serve(device); }

  // Blocks while operations of the group are outstanding. Returns by the last deadline even if MPI hangs.
  void wait_all(GroupState& group);

  // Fails the group without calling the transport: running and later operations throw Aborted with `reason`.
  void abort(GroupState& group, const std::string& reason, ErrorCode code = ErrorCode::Aborted);

  // As abort(), for groups that lost a member; reports a thread that is stuck, even before a deadline.
  void lose(const std::vector<GroupState*>& groups, const std::string& reason);

  // Runs outstanding operations to their end, at most until their deadlines, then destroys the group's
  // transport; leaks that of a failed group, since peers may still write to its memory.
  void close(GroupState& group);

  // Runs `callback` on a completer thread; it may take the GIL and block.
  void later(std::function<void()> callback);

  // Blocks for at most `patience` until nothing is outstanding in the background. Never calls the transport.
  void settle(std::chrono::milliseconds patience) const;

  // Stops the threads; outstanding operations fail with Aborted. False if MPI must not be called any more: a
  // thread is stuck in the transport, or something was outstanding. Idempotent.
  bool shutdown();
  bool left_behind() const { return left_behind_; }  // after shutdown(): a thread is stuck in the transport

  // The lowest sequence number outstanding in the background; the next one if there is none.
  std::uint64_t first_unfinished(const GroupState& group, Channel channel) const {
    return outstanding_.first_sequence(group, channel, group.sequence(channel));
  }

  bool stuck() const { return progress_.stuck(); }  // MPI must not be called

  const Observers& observers() const { return endings_.observers(); }

  // --- for Group ---
  // submit() hands an operation over, carry() then ensures its progress, if in the background. `begin_here`:
  // this thread starts it if the role is free; not with a group's lock held.
  void submit(const OperationPtr& operation) { outstanding_.submit(operation); }
  void carry(const OperationPtr& operation, bool begin_here);
  // Where buffers of operations without a waiter are released after a pass: on the thread that made it, or on
  // a completer thread. ByCaller: as Here, but meanwhile the progress thread takes over from this waiter.
  enum class Releases { Here, ByCaller, Completer };
  bool try_pass(Releases releases, const Operation* awaited = nullptr, Doorbell* bell = nullptr,
                std::shared_ptr<const shm::NodeMemory>* memory = nullptr);
  std::shared_ptr<ScratchPool> scratch() { return scratch_; }
  const Traffic& traffic() const { return progress_.traffic(); }

 private:
  explicit Engine(EngineOptions options) : options_(std::move(options)) {}
  void release(std::vector<OperationPtr>& ended, Releases releases) noexcept;  // not with the role
  void fail_for_waiter(Operation& operation, ErrorCode code);  // for a waiter, even if the role is stuck

  const EngineOptions options_;
  const std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
  Completer completer_;
  Outstanding outstanding_;
  Endings endings_{options_, outstanding_, completer_};
  Progress progress_{options_, outstanding_, endings_};
  Crowding crowding_{options_.oversubscribed};
  std::atomic<int> callers_{0};
  bool left_behind_ = false, ended_well_ = false;  // results of shutdown()
  ProgressThread progress_thread_{
      {outstanding_, callers_, crowding_,
       [this](auto& bell, auto& memory) { return try_pass(Releases::Completer, nullptr, &bell, &memory); }},
      options_.longest_nap};
  StuckWatch watch_{options_, progress_, outstanding_, endings_.observers()};
};

}  // namespace mpi_gdr
