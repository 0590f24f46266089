// Describes a collective call, to compare it between ranks. Plain data for shared memory and messages.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/types.hpp"

namespace mpi_gdr {

struct CallRecord {
  // Hash of this and all earlier calls on the group's channel. The only member compared.
  std::uint64_t history = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;  // elements; meaningless if `uneven`
  std::int32_t root = 0;
  Collective collective = Collective::Barrier;
  ReduceOp op = ReduceOp::Sum;
  bool uneven = false;           // blocks have their own counts, which are hashed into `history`
  std::array<char, 16> dtype{};  // as torch spells it, truncated
};

// "all_reduce #5 of 10 x float32, op=sum". Accepts any bytes: the record may come from another process.
std::string text_of(const CallRecord& call);

// The error message when `rank` has called `theirs`, and this rank `ours`.
std::string difference(int rank, const CallRecord& theirs, const CallRecord& ours);

}  // namespace mpi_gdr
