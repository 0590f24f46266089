// Kernels of processes that share a device without MPS: the processes take turns. Who has the device keeps it
// for a time slice, also while its kernels do nothing but poll, or until all of them have ended.
//
// A turn is a lock on a file that all processes find beside their code: it ends with the process, whatever
// ends that. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace fakecuda {

class Turns {
 public:
  // Of the device of this number on the machine.
  explicit Turns(int device) : device_(device) {}
  Turns(const Turns&) = delete;

  // Around each step of a kernel. Waits for the turn of this process. `first`, `last`: of the kernel.
  void begin(bool first);
  void end(bool last);
  // Of this process, that have begun and not ended: also those that wait for their turn.
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
