// What an engine is made with.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/group_state.hpp"
#include "engine/observer.hpp"

namespace mpi_gdr {

struct EngineOptions {
  bool oversubscribed = false;  // more ranks than cores on this node: give the core away at once when idle
  std::chrono::microseconds longest_nap{200};
  // How long past a deadline a thread may sit in one call of the transport before `on_stuck` is told.
  std::chrono::milliseconds stuck_grace{3000};
  std::function<void(const std::string&)> on_stuck;  // default: report and end the process
  std::vector<std::shared_ptr<Observer>> observers;
  // What is known of lost members of a group, or "". Called with the progress role when the transport reports
  // an error, since a library does not say that the peer is dead.
  std::function<std::string(const GroupState&)> explain;
  // Which member may be stopped or cut off, or "": asked when an operation has timed out, as above.
  std::function<std::string(const GroupState&)> quiet;
  // Called with the progress role for operations that are slow (GroupState::is_slow()); must not wait.
  std::function<void(const Operation&)> on_slow;
};

}  // namespace mpi_gdr
