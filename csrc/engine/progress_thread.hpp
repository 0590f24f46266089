// The thread that carries operations nobody waits for (DDP waits on a Future, which is not ours).
//
// Nothing outstanding: it sleeps on a condition variable. While a caller waits in the engine, the caller
// progresses and the thread naps. Otherwise it polls: at full speed while the issuing thread is blocked, or a
// device waits; with naps of 50 us up to `longest_nap` while the issuing thread computes, as its CPU clock
// shows: a thread that always spins would take the core from the computation. (Naps of some milliseconds
// before sleep save the issuer a call to wake it, but take 12 % from a computation.)
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
  // What it has of the engine, which outlives the thread.
  struct Work {
    const Outstanding& outstanding;
    const std::atomic<int>& callers;  // that wait in the engine
    Crowding& crowding;
    // Progress::try_pass(); completer threads let go of what ended.
    std::function<bool(Doorbell&, std::shared_ptr<const shm::NodeMemory>&)> pass;
  };
  ProgressThread(Work work, std::chrono::microseconds longest_nap);
  ~ProgressThread() { stop(std::chrono::seconds(2)); }

  // Starts the thread, which holds `engine` to its own end. Once.
  void begin(std::shared_ptr<void> engine);

  // When the thread shall look after what the calling thread has submitted.
  enum class When {
    Later,  // when the caller has issued no more for a nap: it most likely waits sooner
    Soon,   // beside a caller that waits, after a nap
    Now     // also then
  };
  void wake(When when);

  // The transport is given memory of this device from now on: it is to be the thread's current one.
  void serve(Device& device) { device_.store(&device, std::memory_order_release); }

  // Ends the thread; left behind if it is stuck, with the engine that it holds. Idempotent.
  void stop(std::chrono::milliseconds patience);

 private:
  // Left: a nap while nothing is urgent, which ends when something is.
  enum class Rest { None, Left, Nap, Sleep };

  void run();
  void sleep();
  void nap(std::chrono::nanoseconds duration, Rest rest);  // ended early by When::Now
  void poll_until_idle();
  bool issuer_computes();
  // A device may wait for this thread, and the cores are not shared.
  bool keeps_polling(Clock::time_point now) const;
  // The cores are shared: other ranks need them.
  bool naps_soon(Clock::time_point now) const;
  void enter_device();

  const Work work_;
  const std::chrono::microseconds longest_nap_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Rest> rest_{Rest::None};
  std::atomic<bool> at_once_{false};  // since the last nap
  // Until when what is When::Later is left to its caller, and since when: CLOCK_MONOTONIC, by issuing
  // threads.
  std::atomic<std::int64_t> left_until_{0}, first_left_{0};
  std::atomic<bool> stopping_{false};
  bool ended_ = false;  // under mutex_
  std::atomic<clockid_t> issuer_clock_{CLOCK_MONOTONIC};

  std::atomic<Device*> device_{nullptr};

  // Of the thread itself: what it has entered, and the last look at the issuer's clock.
  Device* entered_ = nullptr;
  std::chrono::nanoseconds sampled_wall_{0}, sampled_cpu_{0};
  std::chrono::microseconds beside_callers_;  // its next nap there
  bool computes_ = false;

  std::thread thread_;
};

}  // namespace mpi_gdr
