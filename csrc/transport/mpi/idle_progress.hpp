// Enters MPI when no other thread does: most networks move data only inside MPI calls, so that a message
// which MPI_Test reported as done may still be in a buffer. When this process has not called MPI for 10 ms,
// the thread tests a receive that no message matches, at growing intervals.
//
// begin(), suspend_until_entry() and end(): any thread. note_entry(): the user of a transport.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace mpi_gdr::mpi {

class IdleProgress {
 public:
  // Called after MPI_Init. Starts the thread if MPI_GDR_IDLE_PROGRESS or the network requires it; the thread
  // ends before MPI_Finalize.
  void begin();
  // Ends the thread until the next note_entry() restarts it. For groups whose messages do not use MPI yet.
  void suspend_until_entry();
  // False if the thread does not return from MPI: MPI_Finalize must not be called then.
  bool end() noexcept;

  // The calling thread enters MPI. One thread at a time.
  void note_entry() noexcept {
    entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (waits_for_entry_.load(std::memory_order_relaxed)) [[unlikely]]
      restart();
  }

 private:
  void start_thread();  // with mutex_
  void restart() noexcept;
  void run();
  static int before_finalize(MPI_Comm, int, void* self, void*);

  std::mutex mutex_;  // never held inside MPI; guards all but the atomics
  std::condition_variable changed_;
  std::thread thread_;
  bool ending_ = false, ended_ = true;  // ended_: no thread is inside run()
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request unmatched_receive_ = MPI_REQUEST_NULL;  // a receive of this process from itself

  std::atomic<std::uint64_t> entries_{0};
  // The thread is in a long pause or not started. An entry just before this is set is noticed one pause
  // later.
  std::atomic<bool> waits_for_entry_{false};
};

}  // namespace mpi_gdr::mpi
