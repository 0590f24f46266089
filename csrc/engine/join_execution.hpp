#pragma once

#include "engine/operation.hpp"

namespace mpi_gdr {

// Joins messages and collectives issued together: two channels, one Work. advance() waits for `other` and
// throws the error of `other`. The engine fails and abandons `other` as an operation of its own.
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
