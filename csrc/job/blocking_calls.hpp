// Uninterruptible calls of MPI and of torch's store, which may never return if what they wait for is lost.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace mpi_gdr {

// Thread-safe.
class BlockingCalls {
 public:
  using Clock = std::chrono::steady_clock;

  // Registers a call that waits for these ranks or, if empty, for the job's store, which rank 0 may serve.
  class Call {
   public:
    Call(BlockingCalls& calls, std::string what, std::vector<int> ranks,
         Clock::time_point deadline = Clock::time_point::max());
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class BlockingCalls;
    BlockingCalls& calls_;
    const std::string what_;
    const std::vector<int> ranks_;
    const Clock::time_point deadline_;
    Clock::time_point lost_{};
  };

  // Ends the process if, for 3 s, a call's rank or store has been lost (`lost_among`, `store_lost` return
  // why, or "") or its deadline has passed.
  void look(const std::function<std::string(const std::vector<int>&)>& lost_among,
            const std::function<std::string()>& store_lost);

 private:
  std::mutex mutex_;
  std::list<Call*> calls_;
};

}  // namespace mpi_gdr
