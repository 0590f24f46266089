// Runs two executions in a row; the second is made when the first is done, from its result.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "execution/execution.hpp"

namespace mpi_gdr {

class ChainedExecution : public Execution {
 public:
  // Makes the second execution, on the thread that holds the progress role; null: there is none.
  using Next = std::function<std::unique_ptr<Execution>()>;

  ChainedExecution(std::unique_ptr<Execution> first, Next next)
      : current_(std::move(first)), next_(std::move(next)) {}
  bool advance() override {
    while (current_) {
      const bool done = current_->advance();
      rounds_done_ = rounds_before_ + current_->rounds_done();
      if (current_->chosen()) chosen_ = current_->chosen();
      if (!done) return false;
      rounds_before_ = rounds_done_;
      current_ = next_ ? std::exchange(next_, nullptr)() : nullptr;
    }
    return true;
  }
  std::vector<int> pending_peers() const override {
    return current_ ? current_->pending_peers() : std::vector<int>{};
  }
  bool doorbell(Doorbell& bell) const override { return current_ && current_->doorbell(bell); }
  bool awaits_turn() const override { return current_ && current_->awaits_turn(); }
  void abandon() noexcept override {
    if (current_) current_->abandon();
  }

 private:
  std::unique_ptr<Execution> current_;
  Next next_;  // empty once called
  std::uint64_t rounds_before_ = 0;
};

}  // namespace mpi_gdr
