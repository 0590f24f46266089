#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

// One Work for messages and collectives issued together: it completes when `other`, the operation of the
// other channel, does, or throws its error. The engine fails and abandons `other` separately.
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
