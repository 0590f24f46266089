// An execution that waits for another operation.
#pragma once

#include <utility>
#include <vector>

#include "engine/operation.hpp"

namespace mpi_gdr {

// For messages and collectives that were issued together: they run on two channels and have one Work. Done
// when `other` has ended well; throws its error if it has not. `other` fails and is abandoned by itself.
class JoinExecution : public Execution {
 public:
  explicit JoinExecution(OperationPtr other) : other_(std::move(other)) {}
  bool advance() override {
    if (!other_->finished()) return false;
    if (other_->error()) std::rethrow_exception(other_->error());
    ++rounds_done_;
    return true;
  }
  std::vector<int> pending_peers() const override {
    return other_->finished() ? std::vector<int>{} : other_->pending_peers();
  }
  void abandon() noexcept override {}

 private:
  const OperationPtr other_;
};

}  // namespace mpi_gdr
