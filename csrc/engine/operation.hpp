// One operation in flight: what the caller holds and waits for, and what the engine advances.
//
// Threads: `info` never changes. The parts belong to the holder of the progress role. finished(), error() and
// on_finished(): any thread. One thread finishes an operation: that for which try_finish() is true.
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

// When std::bad_alloc says that there is none: it does not say for what.
inline constexpr const char* kNoMemoryForRecords =
    "this rank has no memory for what it keeps of its operations (std::bad_alloc)";

// What observers and messages show of an operation.
struct Description {
  std::string name;                // "all_reduce"
  CallDetail detail;               // "float32[1048576] op=sum"
  std::string_view profiler_name;  // as torch's profiler calls it, without the backend: "_all_gather_base"
  TensorShapes inputs, outputs;
  std::string_view dtype;       // of the tensors, as Python spells it: "float32"; empty: none
  std::uint64_t item_size = 1;  // bytes
};

struct OperationInfo : Description {
  std::string algorithm;  // "ring"
  Channel channel = Channel::Collective;
  std::uint64_t sequence = 0;   // first one of the channel that it uses
  std::uint64_t sequences = 0;  // how many; 0 for point-to-point
  std::uint32_t messages = 0;   // how many; 0 for collectives
  CallRecord call;              // of collectives, the last one
  std::uint64_t bytes = 0;      // this rank's contribution
  Clock::time_point issued, deadline;
};

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  struct Part {
    std::unique_ptr<Execution> execution;
    bool done = false;
  };
  Operation(std::shared_ptr<GroupState> group, OperationInfo&& info, std::vector<Part> parts,
            std::shared_ptr<void> keepalive, bool background, bool on_device = false);

  const OperationInfo& info() const { return info_; }
  // What runs: `zero_copy` or `staged` in place of `adaptive` once that is decided. Any thread.
  std::string_view algorithm() const {
    const char* const chosen = chosen_.load(std::memory_order_relaxed);
    return chosen ? std::string_view(chosen) : info_.algorithm;
  }
  GroupState& group() const { return *group_; }
  // True: the progress thread carries it. False: only waiters do.
  bool background() const { return background_; }
  // A device works on it as well, and waits for what the host does.
  bool on_device() const { return on_device_; }

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // Null if it succeeded. Only after finished().
  std::exception_ptr error() const { return error_; }
  // Runs `callback` once finished: on a completer thread, or at once on this thread if that is so already.
  void on_finished(std::function<void()> callback);
  // Unblocks the device after a failure: DeviceProgram::release_device() of all parts.
  bool release_device() const noexcept { return !release_device_ || release_device_(); }
  // Whom Endings tells; before the operation is submitted. Empty: nobody.
  std::function<void(const Operation&)> on_ended;
  // How; before the operation is submitted.
  void on_release_device(std::function<bool()> release) { release_device_ = std::move(release); }
  // Releases the caller's buffers after finished(); idempotent. Not on the progress thread.
  void release_buffers();
  // Runs before the parts, which wait for it. Before the operation is submitted.
  void precede_by(std::unique_ptr<Execution> check) { check_ = std::move(check); }
  // "all_reduce seq=7 float32 count=1048576 op=sum algorithm=ring group=default_pg rank=0/2"
  std::string describe() const;

  // When the engine began to work on it (issue if it never did), and when it was over. After finished().
  Clock::time_point started_at() const;
  Clock::time_point finished_at() const { return finished_at_; }

  // Part i, to read its result (the source of a receive). Only after finished() without an error.
  const Execution& part(std::size_t i) const { return *parts_[i].execution; }

  // A thread waits on the host and gets the error. Set before it waits, and for good.
  std::atomic<bool> heard{false};
  // What follows it on the host has been done: its results are in the caller's tensors.
  std::atomic<bool> settled{false};
  // A waiter takes the buffers over; without one, Engine::Releases says who does.
  std::atomic<int> waiters{0};
  // The progress thread must not leave it to its caller, or it has ended.
  std::atomic<bool> urgent{false};
  // Those of Observers. By the issuing thread, then the holder of the progress role; read by whoever ends it.
  Observers::Numbers numbers{};

  // All parts do. Before the operation is submitted.
  bool keeps_to_memory() const;

  // --- for the holder of the progress role ---
  void note_start(Clock::time_point now) {
    started_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  bool advance();        // true when all parts are done
  bool started = false;  // it had its turn
  bool slow = false;     // it has been reported as slow
  bool queued = false;   // it stands in the engine's list of those that wait for theirs
  std::uint64_t rounds_done() const;
  std::vector<int> pending_peers() const;  // sorted, unique
  bool awaits_turn() const;                // a part does
  bool doorbell(Doorbell& bell) const;     // Execution::doorbell, of the only part
  void abandon() noexcept;
  // After advance() said done: gives scratch memory back, which a Work kept by the user would hold on to.
  void retire();

  // --- for whoever ends it ---
  // True for the one caller whose verdict counts. `callbacks` receives what must then run on a completer.
  bool try_finish(std::exception_ptr error, Clock::time_point now, Completer::Callbacks& callbacks) noexcept;
  // Keeps it and the caller's buffers for ever: a peer or the library may still write there. Needs no memory.
  void leak() noexcept;
  bool has_buffers() const { return has_buffers_.load(std::memory_order_acquire); }

 private:
  const std::shared_ptr<GroupState> group_;
  const OperationInfo info_;
  std::function<bool()> release_device_;  // empty: no device waits
  std::unique_ptr<Execution> check_;      // null: none, or it is done
  std::vector<Part> parts_;
  std::size_t first_unfinished_ = 0;
  const bool background_, on_device_;

  std::shared_ptr<void> keepalive_;  // whoever clears has_buffers_ lets go of it
  std::mutex mutex_;                 // callbacks_ and the moment of finishing
  Completer::Callbacks callbacks_;
  std::exception_ptr error_;       // written before finished_
  Clock::time_point finished_at_;  // written before finished_
  // Clock ticks; 0: not yet. A waiter that gives up may read it while the role holder starts the operation.
  std::atomic<Clock::rep> started_at_{0};
  std::atomic<bool> finished_{false};  // release after error_
  std::atomic<bool> has_buffers_{false};
  std::atomic<bool> leaked_{false};
  std::atomic<const char*> chosen_{nullptr};  // by the role holder
  std::shared_ptr<Operation> self_;           // by whoever sets leaked_
};

using OperationPtr = std::shared_ptr<Operation>;

// Unblocks the device from an operation that has failed, as often as it takes: other ranks may overwrite what
// was set for the device. Does not wait for it. Any thread, also several at once.
void let_the_device_go_on(const OperationPtr& operation) noexcept;

}  // namespace mpi_gdr
