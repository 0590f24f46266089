// An instantiated graph, which runs any number of times, one run after another.
#pragma once

#include <memory>
#include <vector>

#include "cudart/capture.hpp"

namespace fakecuda {

// Branches of the graph run concurrently, each on its own stream, as far as hardware queues allow.
class GraphExec {
 public:
  explicit GraphExec(Gpu& gpu, std::shared_ptr<const Graph> graph);
  // One run, in stream order. With the machine's mutex.
  void launch(Lock& lock, const StreamPtr& stream);

 private:
  const std::shared_ptr<const Graph> graph_;
  std::vector<StreamPtr> branches_;
  std::vector<std::size_t> branch_of_;  // by node
  Mark end_;                            // of the last run
};

}  // namespace fakecuda
