// The machine's devices as this process sees them, and the current device of each thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
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

// Executes work. Each has hardware queues of its own; a copy engine executes one copy at a time.
enum class Engine : std::uint8_t { Kernels, ToDevice, FromDevice };
inline constexpr std::size_t kEngines = 3;

// Guarded by the machine's mutex, except `room`, `turns`, `copies` and `accepts`.
struct Gpu {
  Gpu(int index, const DeviceSettings& settings);
  // The queue of the stream with this number.
  HardwareQueue& queue(Engine engine, std::size_t stream) const {
    const std::size_t each = queues.size() / kEngines;
    return *queues[static_cast<std::size_t>(engine) * each + stream % each];
  }

  const int index;
  Multiprocessors room;
  Turns turns;
  std::array<std::mutex, kEngines> copies;             // held during a copy, by engine
  std::vector<std::unique_ptr<HardwareQueue>> queues;  // as many for each engine
  std::size_t streams_made = 0;
  std::vector<std::weak_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;  // the default stream
  std::set<const void*> loaded;    // kernels, by host function
  std::atomic<int> accepts = -1;   // calls before one is refused; < 0: none is
  bool shut = false;               // a call waits for the device and blocks all others
};

// Made by the runtime's first call and never destroyed: its threads run until the process ends.
class Machine {
 public:
  static Machine& get();

  Gpu& gpu(int device) { return *gpus_[static_cast<std::size_t>(device)]; }
  int devices() const { return devices_.load(std::memory_order_acquire); }
  // Returns the index. Thread-safe.
  int add(const DeviceSettings& settings);
  bool forked() const;  // a child of the process that uses CUDA

  std::mutex mutex;
  std::condition_variable changed;  // some work has ended
  std::size_t pending = 0;          // items in all queues
  std::size_t executing = 0;        // of these
  std::atomic<bool> over = false;   // the process ends: no item begins. Written with the mutex, read without

 private:
  Machine();
  std::array<std::unique_ptr<Gpu>, 4096> gpus_;
  std::atomic<int> devices_{0};  // valid ones
  const int owner_;              // pid
};

// The context of the calling thread, or null.
Gpu*& current_context();
// The same; a thread without a context gets that of device 0.
Gpu& current_gpu();

}  // namespace fakecuda
