// Runs the callbacks of finished operations (c10d Futures, Python hooks), away from the progress thread: they
// may take the GIL and may block.
//
// A callback may itself wait for the Future of another operation (PowerSGD does). That one must not queue
// behind the callback that waits for it: callbacks registered from a completer thread of depth d run on the
// thread of depth d + 1. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mpigdr {

class Completer {
 public:
  Completer() = default;
  ~Completer() { stop(std::chrono::seconds(2)); }

  // Depth for callbacks that the calling thread registers: 0, or one more than its own if it is a completer.
  static int depth_of_caller();

  // Never blocks on callbacks. After stop() the callback is dropped: nobody is left to hear of it.
  void push(int depth, std::function<void()> callback);

  // Runs what is queued, then ends the threads. One that is stuck in a callback at the end of `patience` is
  // left behind. Idempotent.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Worker {  // shared with its thread, which may outlive the Completer
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool stopping = false, ended = false;
    std::thread thread;
  };
  static void run(std::shared_ptr<Worker> worker, int depth);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Worker>> workers_;  // by depth, started when first needed
  bool stopped_ = false;
};

}  // namespace mpigdr
