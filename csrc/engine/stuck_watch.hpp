// Ends the process, with a message, when a thread is stuck inside the transport (MPI may hang in a call when
// a peer is gone) past the deadline of an operation, or although the loss of a peer is known.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/engine_options.hpp"
#include "engine/outstanding.hpp"
#include "engine/progress.hpp"

namespace mpi_gdr {

class StuckWatch {
 public:
  // Starts the thread. All outlive it.
  StuckWatch(const EngineOptions& options, const Progress& progress, const Outstanding& outstanding,
             const Observers& observers);
  ~StuckWatch() { stop(); }
  // A peer is gone for good: the first reason counts. Any thread.
  void lose(const std::string& reason);
  void stop();  // idempotent

 private:
  void run();
  void look();

  const EngineOptions& options_;
  const Progress& progress_;
  const Outstanding& outstanding_;
  const Observers& observers_;
  std::mutex mutex_;  // the next three
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string lost_;
  bool notified_ = false;  // of the thread
  int seen_ = 0;           // of the thread: looks in a row at which somebody was stuck
  std::thread thread_;     // last: starts when all else is there
};

}  // namespace mpi_gdr
