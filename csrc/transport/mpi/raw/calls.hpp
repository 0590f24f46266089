// Private to transport/mpi/raw: RawMpi by the calls of mpi.h.
#pragma once

#include "transport/mpi/raw/raw_mpi.hpp"

namespace mpigdr::mpi {

class RawCalls final : public RawMpi {
 public:
  std::string objection(const RawCall& call) override;
  std::vector<double> time_call(const RawCall& call, const RawTiming& timing) override;
  double time_messages(const MessageTurn* turn, int warmup, int iterations,
                       std::chrono::milliseconds timeout) override;
  std::vector<double> all_gather(const std::vector<double>& mine) override;
  void barrier() override;
  void start_all_reduce(void* buffer, std::uint64_t count, DataType dtype, ReduceOp op) override;
  bool test_all_reduce() override;
};

}  // namespace mpigdr::mpi
