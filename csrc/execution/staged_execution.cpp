#include "execution/staged_execution.hpp"

#include <utility>

namespace mpigdr {

StagedExecution::StagedExecution(std::unique_ptr<Execution> first, Next next)
    : current_(std::move(first)), next_(std::move(next)) {}

bool StagedExecution::advance() {
  while (current_) {
    const bool done = current_->advance();
    rounds_done_ = rounds_before_ + current_->rounds_done();
    if (!done) return false;
    rounds_before_ = rounds_done_;
    current_ = next_ ? std::exchange(next_, nullptr)() : nullptr;
  }
  return true;
}

std::vector<int> StagedExecution::pending_peers() const {
  return current_ ? current_->pending_peers() : std::vector<int>{};
}

void StagedExecution::abandon() noexcept {
  if (current_) current_->abandon();
}

}  // namespace mpigdr
