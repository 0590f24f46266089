// Kernels of processes that share a device without MPS: the processes take turns. A process keeps the device
// for a time slice, even if its kernels only poll, or until all of them have ended.
//
// A turn is a lock on the file of this code, which all processes find; it ends with the process however that
// ends. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace fakecuda {

class Turns {
 public:
  // `device`: its number on the machine.
  explicit Turns(int device) : device_(device) {}
  Turns(const Turns&) = delete;

  // Enclose each step of a kernel. begin() waits for this process's turn. `first`, `last`: of its steps.
  void begin(bool first);
  void end(bool last);
  // This process's kernels that have begun and not ended, including those that wait for their turn.
  int kernels() {
    const std::lock_guard lock(mutex_);
    return kernels_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void take();     // with mutex_
  void give_up();  // with mutex_
  void lock_file(int which, int kind);

  const int device_;
  std::mutex mutex_;
  std::condition_variable over_;
  int file_ = -1;
  int kernels_ = 0, stepping_ = 0;  // of this process
  bool ours_ = false;
  Clock::time_point end_;  // of the slice
};

}  // namespace fakecuda
