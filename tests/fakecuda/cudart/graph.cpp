#include "cudart/graph.hpp"

#include <algorithm>

#include "gpu/fault.hpp"

namespace fakecuda {

// A node extends the branch of its first predecessor that ends a branch.
GraphExec::GraphExec(Gpu& gpu, std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {
  std::vector<std::size_t> last;  // by branch
  for (std::size_t n = 0; n < graph_->nodes.size(); ++n) {
    std::size_t branch = last.size();
    for (const std::size_t earlier : graph_->nodes[n].after)
      if (branch == last.size() && last[branch_of_[earlier]] == earlier) branch = branch_of_[earlier];
    if (branch == last.size()) {
      last.push_back(n);
      branches_.push_back(std::make_shared<Stream>(gpu, Stream::Kind::NonBlocking));
      gpu.streams.push_back(branches_.back());
    }
    last[branch] = n;
    branch_of_.push_back(branch);
  }
}

void GraphExec::launch(Lock& lock, const StreamPtr& stream) {
  if (stream->capture) fault("not modelled: a graph within a graph");
  const Mark begin = enqueue(lock, stream, {end_}, nullptr);
  std::vector<Mark> marks;  // by node
  for (std::size_t n = 0; n < graph_->nodes.size(); ++n) {
    const Graph::Node& node = graph_->nodes[n];
    std::vector<Mark> after = {begin};
    for (const std::size_t earlier : node.after) after.push_back(marks[earlier]);
    marks.push_back(enqueue(lock, branches_[branch_of_[n]], std::move(after),
                            node.launched ? node.launched() : node.step, node.engine));
  }
  end_ = enqueue(lock, stream, std::move(marks), nullptr);
}

}  // namespace fakecuda
