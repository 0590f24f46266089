// Looks from outside whether a thread is stuck inside the transport (MPI may hang in a call when a peer is
// gone) past the deadline of an operation, or although the loss of a peer is known. Nobody can raise an
// exception for a thread that never returns, so it says what is known and ends the process.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace mpigdr {

class Engine;

class StuckWatch {
 public:
  explicit StuckWatch(Engine& engine);
  ~StuckWatch() { stop(); }
  void stop();  // idempotent

 private:
  void run();
  void look();

  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  bool told_ = false;      // of the thread
  int seen_ = 0;           // of the thread: looks in a row at which somebody was stuck
  std::thread thread_;     // last: starts when all else is there
};

}  // namespace mpigdr
