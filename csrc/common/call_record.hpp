// A collective as all ranks of its group must call it. Plain data, for shared memory and messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/types.hpp"

namespace mpi_gdr {

struct CallRecord {
  // Hash of this call and of all before it on its channel of the group: equal on all ranks, or one of these
  // calls differs. The only member that is compared.
  std::uint64_t history = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;  // elements
  std::int32_t root = 0;
  Collective collective = Collective::Barrier;
  ReduceOp op = ReduceOp::Sum;
  bool uneven = false;           // blocks of as many elements as their counts say, which `history` holds
  std::array<char, 16> dtype{};  // as torch spells it, cut to what there is room for
};

// "all_reduce #5 of 10 x float32, op=sum". Of any bytes: they may be another process's.
std::string text_of(const CallRecord& call);

// Of two that differ: "rank 1 called ..., this rank called ...".
std::string difference(int rank, const CallRecord& theirs, const CallRecord& ours);

}  // namespace mpi_gdr
