// Two executions in a row, of which the second is made when the first is done, from what that brought.
#pragma once

#include <functional>
#include <memory>

#include "execution/execution.hpp"

namespace mpigdr {

class StagedExecution : public Execution {
 public:
  // Makes the second stage, on the thread that holds the progress role; null: there is none.
  using Next = std::function<std::unique_ptr<Execution>()>;

  StagedExecution(std::unique_ptr<Execution> first, Next next);
  bool advance() override;
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override;

 private:
  std::unique_ptr<Execution> current_;
  Next next_;  // empty once called
  std::uint64_t rounds_before_ = 0;
};

}  // namespace mpigdr
