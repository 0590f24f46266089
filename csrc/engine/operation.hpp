// One operation: callers wait for it, the engine advances it; try_finish() ends it. Any thread unless
// stated otherwise. The parts belong to the issuing thread until the submission, then to the role holder.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/call_detail.hpp"
#include "common/tensor_shapes.hpp"
#include "engine/completer.hpp"
#include "engine/observer.hpp"
#include "execution/execution.hpp"

namespace mpi_gdr {

class GroupState;

inline constexpr const char* kNoMemoryForRecords =
    "this rank has no memory for the records of its operations (std::bad_alloc)";

struct Description {               // for observers and messages; views must live as long as the process
  std::string_view name;           // "all_reduce"
  CallDetail detail;               // "float32[1048576] op=sum"
  std::string_view profiler_name;  // torch's profiler's name without the backend: "_all_gather_base"
  TensorShapes inputs, outputs;
  std::string_view dtype;       // of the tensors, in Python's spelling: "float32"; empty: none
  std::uint64_t item_size = 1;  // bytes
};

struct IssuedInfo {            // set when it is issued
  std::string_view algorithm;  // "ring"; never freed
  Channel channel = Channel::Collective;
  std::uint64_t sequence = 0;   // its first one on the channel
  std::uint64_t sequences = 0;  // how many; 0 if messages
  std::uint32_t messages = 0;   // number of messages; 0 if collectives
  CallRecord call;              // the last collective's
  std::uint64_t bytes = 0;      // this rank's contribution
  Clock::time_point issued, deadline;
};

struct OperationInfo : Description, IssuedInfo {};

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  struct Part {
    std::unique_ptr<Execution> execution;
    bool done = false;
  };
  Operation(std::shared_ptr<GroupState> group, Description&& description, const IssuedInfo& issued,
            std::vector<Part> parts, std::shared_ptr<void> keepalive, bool background,
            bool on_device = false);

  const OperationInfo& info() const { return info_; }
  std::string_view algorithm() const {  // `adaptive` is replaced once decided
    const char* const chosen = chosen_.load(std::memory_order_relaxed);
    return chosen ? std::string_view(chosen) : info_.algorithm;
  }
  GroupState& group() const { return *group_; }
  // True: the progress thread ensures progress. False: a waiter does. Any role holder may advance either.
  bool background() const { return background_; }
  bool on_device() const { return on_device_; }  // a device also works on it, and waits for the host's part

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  std::exception_ptr error() const { return error_; }  // after finished(); null: it succeeded
  // Runs `callback` on a completer thread, or at once on this thread if the operation has finished.
  void on_finished(std::function<void()> callback);
  // After a failure: ends waits of the device in programs and messages. False: call again until true.
  bool release_device() const noexcept { return !release_device_ || release_device_(); }
  std::function<void(const Operation&)> on_ended;  // on the thread that ends it; set before the submission
  // Before the submission. `release`: any thread, also several at once.
  void on_release_device(std::function<bool()> release) { release_device_ = std::move(release); }
  void release_buffers();  // after finished(), idempotent; not on the progress thread
  // Before the submission: `check` runs before the parts.
  void precede_by(std::unique_ptr<Execution> check) { check_ = std::move(check); }
  std::string describe() const;  // "all_reduce seq=7 float32[8] op=sum algorithm=ring group=g rank=0/2"

  Clock::time_point started_at() const;  // first advance(); before that the time of issue
  Clock::time_point finished_at() const { return finished_at_; }  // after finished()

  // The result of message i, after finished() without an error; retire() frees the parts of collectives.
  const Execution& part(std::size_t i) const { return *parts_[i].execution; }

  // Set before a host thread waits for the operation and so will get its error; never cleared.
  std::atomic<bool> has_host_waiter{false};
  std::atomic<bool> settled{false};  // MpiWork::settle() has run: epilogues are done or have failed
  std::atomic<int> waiters{0};       // threads that will release the buffers; see Engine::Releases
  std::atomic<bool> urgent{false};   // the progress thread must drive it; also set when it has ended
  Observers::Numbers numbers{};      // see Observers; by the issuing thread, then with the role

  bool uses_only_memory() const;  // of all parts; before the submission, then with the role

  // --- for the holder of the progress role ---
  void note_start(Clock::time_point now) {
    started_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  bool advance();        // true when all parts are done
  bool started = false;  // advanced at least once
  bool slow = false;     // reported as slow
  bool queued = false;   // in Progress::queued_
  std::uint64_t rounds_done() const;
  std::vector<int> pending_peers() const;  // sorted, unique
  bool awaits_turn() const;                // of any part
  bool doorbell(Doorbell& bell) const;     // Execution::doorbell() of the only part
  void abandon() noexcept;
  void retire();  // after advance() returned true: frees scratch memory, since users may keep the Work

  // --- for the thread that ends it ---
  // True for one caller only. Moves the callbacks to `callbacks`, for a completer thread.
  bool try_finish(std::exception_ptr error, Clock::time_point now, Completer::Callbacks& callbacks) noexcept;
  // Keeps operation and buffers forever: a peer or the library may still write there. Allocates nothing.
  void leak() noexcept;
  bool has_buffers() const { return has_buffers_.load(std::memory_order_acquire); }

 private:
  const std::shared_ptr<GroupState> group_;
  const OperationInfo info_;
  std::function<bool()> release_device_;  // empty: no device waits
  std::unique_ptr<Execution> check_;      // null: none, or done
  std::vector<Part> parts_;
  std::size_t first_unfinished_ = 0;
  const bool background_, on_device_;

  std::shared_ptr<void> keepalive_;  // reset by the thread that clears has_buffers_
  std::mutex mutex_;                 // callbacks_, and finishing
  Completer::Callbacks callbacks_;
  std::exception_ptr error_;               // written before finished_
  Clock::time_point finished_at_;          // written before finished_
  std::atomic<Clock::rep> started_at_{0};  // ticks; 0: not started, even if a waiter has ended it
  std::atomic<bool> finished_{false};      // released after error_
  std::atomic<bool> has_buffers_{false};
  std::atomic<bool> leaked_{false};
  std::atomic<const char*> chosen_{nullptr};  // written with the role
  std::shared_ptr<Operation> self_;           // written by the thread that sets leaked_
};

using OperationPtr = std::shared_ptr<Operation>;

// Unblocks the device from a failed operation, repeatedly, since other ranks may overwrite the flags. Does
// not block: starts a thread if once is not enough. Any thread, also several at once.
void unblock_device(const OperationPtr& operation) noexcept;

}  // namespace mpi_gdr
