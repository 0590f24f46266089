// Ends the process when an uninterruptible call (MPI_Init, MPI_Finalize) has not returned by its deadline.
// Reports where the flight log is and the result of `details`, for which it waits up to 3 s. Then calls
// _exit(kExitStuck), because destructors could hang. If the call itself ends the process, as MPI does on
// errors, reports this and the result of `lost`.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "bootstrap/rendezvous.hpp"

namespace mpi_gdr {

class Watchdog {
 public:
  // `lost`, called every 250 ms, returns why the call cannot return, or "". If it returns a reason for 3 s,
  // the process ends.
  Watchdog(std::string what, Deadline deadline, int rank, std::function<std::string()> details = {},
           std::function<std::string()> lost = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run(Deadline deadline);
  void announce(const std::string& why, int status) const;
  void exit_inside(int status) noexcept;

  static thread_local Watchdog* innermost;  // of the calls that this thread is inside
  Watchdog* const outer_ = innermost;
  const std::string what_;
  const int rank_, process_;
  const std::function<std::string()> details_, lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, exiting_ = false;
  std::thread thread_;
};

// `words(reason)`, called on any thread, must return text for the process's last message within about 2 s.
void set_last_words(std::function<std::string(const std::string& reason)> words);
std::string last_words(const std::string& reason) noexcept;

// Writes "[mpi-gdr] rank R: text" to stderr; thread-safe.
void report(int rank, const std::string& text);

}  // namespace mpi_gdr
