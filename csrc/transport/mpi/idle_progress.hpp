// Enters MPI for a process in which no other thread does.
//
// Most networks move data only inside calls of MPI: what MPI_Test calls done may still be in a buffer of this
// process while it waits in a store or computes. MPI does not say so: the thread tests a receive that nothing
// matches when this process has not been in MPI for 10 ms, less often the longer that lasts.
//
// begin(), begin_with_a_message() and end(): any thread. note_entry(): the user of a transport.
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
  // Once MPI is initialised, if MPI_GDR_IDLE_PROGRESS or the network asks for it. Ends before MPI_Finalize.
  void begin();
  // Ends the thread; the next note_entry() starts it again: until then no message goes by MPI.
  void begin_with_a_message();
  // False if the thread does not come out of MPI: MPI_Finalize must not be called then.
  bool end() noexcept;

  // The calling thread enters MPI. To be called by one thread at a time.
  void note_entry() noexcept {
    entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (waits_for_entry_.load(std::memory_order_relaxed)) [[unlikely]]
      attend();
  }

 private:
  void start_thread();  // with mutex_
  void attend() noexcept;
  void run();
  static int before_finalize(MPI_Comm, int, void* self, void*);

  std::mutex mutex_;  // never held inside MPI; guards all but the atomics
  std::condition_variable changed_;
  std::thread thread_;
  bool ending_ = false, ended_ = true;  // no thread is inside run()
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request never_ = MPI_REQUEST_NULL;  // a receive of this process from itself

  std::atomic<std::uint64_t> entries_{0};
  // In a long pause, or not started. A thread that enters just before this is set is noticed a pause later.
  std::atomic<bool> waits_for_entry_{false};
};

}  // namespace mpi_gdr::mpi
