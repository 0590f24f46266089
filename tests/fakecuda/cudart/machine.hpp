// The devices of the machine as this process sees them, and which of them a thread uses.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cudart/turns.hpp"
#include "gpu/multiprocessors.hpp"

namespace fakecuda {

class HardwareQueue;
class Stream;

// Everything but `room` and `turns`: under the machine's mutex.
struct Gpu {
  explicit Gpu(int index);
  HardwareQueue& next_queue();

  const int index;
  Multiprocessors room;
  Turns turns;
  std::vector<std::unique_ptr<HardwareQueue>> queues;
  std::size_t streams_made = 0;
  std::vector<std::weak_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;  // the default stream of whoever names none
  std::set<const void*> loaded;    // kernels, by what the host calls
  std::set<int> peers;             // whose memory may be accessed
  bool shut = false;               // somebody waits for the device and lets nobody else in
};

// Made by the first call of the runtime and never destroyed: its threads run until the process ends.
class Machine {
 public:
  static Machine& get();

  Gpu& gpu(int device) { return *gpus_[static_cast<std::size_t>(device)]; }
  int devices() const { return static_cast<int>(gpus_.size()); }
  // Whether kernels of `device` may access memory of device `owner`. Takes the mutex.
  bool reaches(int device, int owner);
  bool forked() const;  // this is a child of the process that uses CUDA

  std::mutex mutex;
  std::condition_variable changed;  // some work has ended
  std::size_t pending = 0;          // items of all queues
  std::size_t executing = 0;        // of these
  std::atomic<bool> over = false;   // the process ends: no item begins any more. Not only under the mutex

 private:
  Machine();
  std::vector<std::unique_ptr<Gpu>> gpus_;
  const int owner_;  // pid
};

// The context of the calling thread; null: it has none yet.
Gpu*& current_context();
// The same, where a thread that has none gets that of device 0.
Gpu& current_gpu();

}  // namespace fakecuda
