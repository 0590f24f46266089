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
  bool oversubscribed = false;  // more ranks than cores on this node: idle threads yield at once
  std::chrono::microseconds longest_nap{200};
  // A pass that takes longer is stuck. on_stuck is called this long after a deadline, or when a peer is lost.
  std::chrono::milliseconds stuck_grace{3000};
  std::function<void(const std::string&)> on_stuck;  // watch thread; default: logs, ends the process
  std::vector<std::shared_ptr<Observer>> observers;
  // Names lost members of a group, or returns "". Called with the progress role when the transport has
  // thrown, because libraries do not report that a peer has died.
  std::function<std::string(const GroupState&)> explain;
  // Names a suspended or unreachable member, or returns "". Called on any thread when an operation times out.
  std::function<std::string(const GroupState&)> quiet;
  // Called with the progress role for slow operations (GroupState::is_slow()); must not block.
  std::function<void(const Operation&)> on_slow;
};

}  // namespace mpi_gdr
