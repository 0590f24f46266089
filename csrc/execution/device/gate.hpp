// Orders the host's messages and device work: messages begin when the device reaches the flag write of
// enter(), and device work after wait() begins when the messages are over. Unlike a StreamExecution it has
// no queue: the caller of wait() chooses where the device waits.
//
// Threads: enter(), expect(): the issuing thread; wait(), open(): any; others: holder of the progress role.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "device/device.hpp"
#include "execution/device/stream_flags.hpp"
#include "execution/execution.hpp"
#include "execution/simple_executions.hpp"

namespace mpi_gdr {

class Gate {
 public:
  // May synchronise the device (StreamFlagPool::acquire).
  explicit Gate(std::shared_ptr<StreamFlagPool> pool) : pool_(std::move(pool)), flags_(pool_->acquire(1)) {}
  // Leaks the flags if the device has not executed enter(), because it may still write one.
  ~Gate() {
    if (state_.load(std::memory_order_relaxed) == kAwaited) holding_.fetch_sub(1, std::memory_order_relaxed);
    entered() ? pool_->release(flags_) : pool_->leak();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The host's part begins after earlier work of `queue`. Called once.
  void enter(DeviceQueue& queue) { queue.write_flag(flags_.start(), flags_.base + 1); }
  // Later work of `queue` waits until the host's part has completed or failed. Any number of times.
  void wait(DeviceQueue& queue) {
    if (state_.fetch_or(kAwaited, std::memory_order_relaxed) == 0)
      holding_.fetch_add(1, std::memory_order_relaxed);
    queue.wait_flag(flags_.end(), flags_.base + 1);
  }
  // Whether a stream of this process waits for a message. A call that synchronises the device would then wait
  // for the peer, which may wait for this thread's next call.
  static bool any_holds_a_stream() { return holding_.load(std::memory_order_relaxed) > 0; }

  bool entered() const { return flags_.start()->load(std::memory_order_acquire) >= flags_.base + 1; }
  // Each of the parts calls leave() once, at its end.
  void expect(int parts) { parts_ = parts; }
  void leave() noexcept {
    if (--parts_ == 0) open();
  }
  // Unblocks the device: all parts are over, or the operation has failed.
  void open() noexcept {
    flags_.end()->store(flags_.base + 1, std::memory_order_release);
    if (state_.fetch_or(kOpen, std::memory_order_relaxed) == kAwaited)
      holding_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  const std::shared_ptr<StreamFlagPool> pool_;
  const StreamFlags flags_;
  int parts_ = 1;
  static constexpr int kAwaited = 1, kOpen = 2;
  std::atomic<int> state_{0};
  static std::atomic<int> holding_;  // number of gates that are awaited and not open
};

// The order in which messages are posted if some wait for a device. MPI matches messages of one peer and tag
// in that order, but a later one may be ready first, and then waits. Messages of other peers or tags must not
// wait, because the device may need them first.
//
// Threads: take() with the lock under which calls get their order; a Turn by the holder of the progress role.
class MessageTurns {
 public:
  using Posted = std::shared_ptr<std::atomic<bool>>;
  struct Turn {
    std::vector<Posted> before;  // messages to be posted first
    Posted posted = std::make_shared<std::atomic<bool>>(false);
  };

  Turn take(const MessageCall& call) {
    Turn turn;
    if (last_.size() > kMost) std::erase_if(last_, [](const auto& entry) { return entry.second->load(); });
    if (!call.send && call.peer == kAnySource) {  // may match the message of any other receive
      for (const auto& [key, posted] : last_)
        if (!std::get<0>(key) && std::get<2>(key) == call.tag) turn.before.push_back(posted);
    } else {
      add({call.send, call.peer, call.tag}, turn);
      if (!call.send) add({false, kAnySource, call.tag}, turn);
    }
    last_[{call.send, call.peer, call.tag}] = turn.posted;
    return turn;
  }

 private:
  using Key = std::tuple<bool, int, int>;  // send, peer, tag
  void add(const Key& key, Turn& turn) const {
    if (const auto found = last_.find(key); found != last_.end()) turn.before.push_back(found->second);
  }
  static constexpr std::size_t kMost = 4096;  // a program may use a tag per message
  std::map<Key, Posted> last_;
};

class GatedExecution : public Execution {
 public:
  // Posts `inner`, a message, once `gate` has been entered (null gate: at once) and all messages before
  // `turn` have been posted.
  GatedExecution(std::unique_ptr<Execution> inner, std::shared_ptr<Gate> gate, MessageTurns::Turn turn)
      : inner_(std::move(inner)), gate_(std::move(gate)), turn_(std::move(turn)) {}

  bool advance() override {
    if (left_) return true;
    if (!entered_ && gate_ && !gate_->entered()) return false;
    entered_ = true;
    for (; !turn_.before.empty(); turn_.before.pop_back())
      if (!turn_.before.back()->load(std::memory_order_acquire)) return false;
    const bool done = inner_->advance();
    turn_.posted->store(true, std::memory_order_release);
    if (!done) {
      rounds_done_ = inner_->rounds_done();
      return false;
    }
    ++rounds_done_;
    leave();
    return true;
  }
  std::vector<int> pending_peers() const override { return inner_->pending_peers(); }
  bool uses_only_memory() const override { return inner_->uses_only_memory(); }
  void abandon() noexcept override {
    inner_->abandon();
    turn_.posted->store(true, std::memory_order_release);
    leave();
  }
  const Execution& inner() const { return *inner_; }

 private:
  void leave() noexcept {
    if (!left_ && gate_) gate_->leave();
    left_ = true;
  }
  const std::unique_ptr<Execution> inner_;
  const std::shared_ptr<Gate> gate_;
  MessageTurns::Turn turn_;
  bool entered_ = false, left_ = false;
};

}  // namespace mpi_gdr
