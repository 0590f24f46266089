// Ends the process with a message when a thread is stuck in the transport (MPI may hang if a peer is gone)
// past an operation's deadline or after the loss of a peer.
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
  // Starts the thread. The arguments must outlive this object.
  StuckWatch(const EngineOptions& options, const Progress& progress, const Outstanding& outstanding,
             const Observers& observers);
  ~StuckWatch() { stop(); }
  void lose(const std::string& reason);  // any thread; the first reason counts
  void stop();                           // idempotent

 private:
  void run();
  void look();

  const EngineOptions& options_;
  const Progress& progress_;
  const Outstanding& outstanding_;
  const Observers& observers_;
  std::mutex mutex_;  // changed_, stopping_, lost_
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string lost_;
  bool notified_ = false;  // used by the thread only
  int seen_ = 0;           // used by the thread only: consecutive looks that found a thread stuck
  std::thread thread_;     // last: uses the other members
};

}  // namespace mpi_gdr
