// Ends the process when a call that cannot be interrupted (MPI_Init, MPI_Finalize, communicator creation) is
// still running at its deadline. MPI itself has no timeouts, and a thread stuck in it can raise nothing.
//
//   { Watchdog guard("MPI_Init", deadline, rank, [] { return "what peers are missing"; });  MPI_Init(...); }
//
// At the deadline: one line on stderr, which says where the flight log is, then what `details` adds within
// 3 seconds, then _exit(kExitStuck): destructors and exit handlers could hang as well.
//
// A call may also end the process itself, by exit(): MPI does where an error is fatal. One line then says
// which call it was, and what `lost` finds.
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
  // `lost`: asked some times a second; says why the call can never return, or "". Believed after 3 s.
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

// `words(reason)` is called from any thread when this process is ended, and returns what to add to the text
// ("; flight log: ...") within a second or two. Without it, no operation has been called yet.
void set_last_words(std::function<std::string(const std::string& reason)> words);
std::string last_words(const std::string& reason) noexcept;

// Writes "[mpi-gdr] rank R: text" to stderr in one piece; safe from any thread.
void report(int rank, const std::string& text);

}  // namespace mpi_gdr
