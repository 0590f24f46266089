// Advances operations without a waiter (DDP waits on a torch Future). Sleeps on a condition variable while
// nothing is outstanding; naps while a caller makes progress. Otherwise polls: at full speed while the
// issuing thread is blocked or a device waits; between naps of 50 us up to `longest_nap` while that thread
// computes, because spinning may take its core. Naps of milliseconds in place of sleep slowed a computation
// by 12 %.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/crowding.hpp"
#include "engine/outstanding.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/node_memory.hpp"

namespace mpi_gdr {

class Device;

class ProgressThread {
 public:
  struct Work {  // parts of the engine, which outlives the thread
    const Outstanding& outstanding;
    const std::atomic<int>& callers;  // number of threads that wait in the engine
    Crowding& crowding;
    // Calls Engine::try_pass(); completer threads release buffers.
    std::function<bool(Doorbell&, std::shared_ptr<const shm::NodeMemory>&)> pass;
  };
  ProgressThread(Work work, std::chrono::microseconds longest_nap);
  ~ProgressThread() { stop(std::chrono::seconds(2)); }

  void begin(std::shared_ptr<void> engine);  // once; the thread owns `engine` until its end

  enum class When {  // when to take over what the calling thread submitted
    Later,           // after a nap without further submissions: the caller will most likely wait
    Soon,            // at once; after a nap if a thread waits in the engine
    Now              // at once
  };
  void wake(When when);

  // Makes this the thread's current device, because the transport will be passed its memory.
  void serve(Device& device) { device_.store(&device, std::memory_order_release); }

  void stop(std::chrono::milliseconds patience);  // a stuck thread is left behind with its engine; idempotent

 private:
  enum class Rest { None, Deferred, Nap, Sleep };  // Deferred: as Nap, but urgent work ends it

  void run();
  void sleep();
  void nap(std::chrono::nanoseconds duration, Rest rest);  // When::Now ends it early
  void poll_until_idle();
  bool issuer_computes();
  bool keeps_polling(Clock::time_point now) const;  // a device may wait, and no core is shared
  bool naps_soon(Clock::time_point now) const;      // other ranks need the shared cores
  void enter_device();

  const Work work_;
  const std::chrono::microseconds longest_nap_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Rest> rest_{Rest::None};
  std::atomic<bool> at_once_{false};
  // When this thread takes over work of When::Later, and when the first such work was submitted. Times of
  // CLOCK_MONOTONIC; written by issuing threads.
  std::atomic<std::int64_t> deferred_until_{0}, first_deferred_{0};
  std::atomic<bool> stopping_{false};
  bool ended_ = false;  // with mutex_
  std::atomic<clockid_t> issuer_clock_{CLOCK_MONOTONIC};

  std::atomic<Device*> device_{nullptr};

  // Used by the thread only.
  Device* entered_ = nullptr;
  std::chrono::nanoseconds sampled_wall_{0}, sampled_cpu_{0};
  std::chrono::microseconds beside_callers_;  // next nap while callers wait
  bool computes_ = false;

  std::thread thread_;
};

}  // namespace mpi_gdr
