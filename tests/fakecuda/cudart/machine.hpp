// The devices of the machine as this process sees them, and which of them a thread uses.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cudart/host_work.hpp"
#include "cudart/turns.hpp"
#include "gpu/multiprocessors.hpp"

namespace fakecuda {

class HardwareQueue;
class Stream;

// Everything but `room`, `turns` and `accepts`: under the machine's mutex.
struct Gpu {
  Gpu(int index, const DeviceSettings& settings);
  HardwareQueue& next_queue();

  const int index;
  Multiprocessors room;
  Turns turns;
  std::vector<std::unique_ptr<HardwareQueue>> queues;
  std::size_t streams_made = 0;
  std::vector<std::weak_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;  // the default stream of whoever names none
  std::set<const void*> loaded;    // kernels, by what the host calls
  std::atomic<int> accepts = -1;   // calls before one is refused; < 0: no end of them
  bool shut = false;               // somebody waits for the device and lets nobody else in
};

// Made by the first call of the runtime and never destroyed: its threads run until the process ends.
class Machine {
 public:
  static Machine& get();

  Gpu& gpu(int device) { return *gpus_[static_cast<std::size_t>(device)]; }
  int devices() const { return devices_.load(std::memory_order_acquire); }
  // Its index. Thread-safe.
  int add(const DeviceSettings& settings);
  bool forked() const;  // this is a child of the process that uses CUDA

  std::mutex mutex;
  std::condition_variable changed;  // some work has ended
  std::size_t pending = 0;          // items of all queues
  std::size_t executing = 0;        // of these
  std::atomic<bool> over = false;   // the process ends: no item begins any more. Not only under the mutex

 private:
  Machine();
  std::array<std::unique_ptr<Gpu>, 4096> gpus_;
  std::atomic<int> devices_{0};  // of these that there are
  const int owner_;              // pid
};

// The context of the calling thread; null: it has none yet.
Gpu*& current_context();
// The same, where a thread that has none gets that of device 0.
Gpu& current_gpu();

}  // namespace fakecuda
