// A graph made ready to run, any number of times, one run after the other.
#pragma once

#include <memory>
#include <vector>

#include "cudart/capture.hpp"

namespace fakecuda {

// Branches of the graph run side by side: each on a stream of its own, as far as there are hardware queues.
class GraphExec {
 public:
  explicit GraphExec(Gpu& gpu, std::shared_ptr<const Graph> graph);
  // One run, in stream order. Under the machine's mutex.
  void launch(Lock& lock, const StreamPtr& stream);

 private:
  const std::shared_ptr<const Graph> graph_;
  std::vector<StreamPtr> branches_;
  std::vector<std::size_t> branch_of_;  // by node
  Mark end_;                            // of the last run
};

}  // namespace fakecuda
