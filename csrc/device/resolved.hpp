// Reductions on buffers of other ranks whose addresses only the device finds out, when it comes to them: the
// hosts do not wait for each other. Each rank shows where its buffers are, as a word of host memory that its
// device writes; resolve() turns the words of all into a table of addresses in the device's memory, from
// which later work of the same queue takes them.
#pragma once

#include <array>
#include <cstdint>

#include "common/portable.hpp"
#include "device/device.hpp"

namespace mpi_gdr {

inline constexpr int kMostResolved = 64;  // ranks, and sources of a ResolvedReduce

// What a rank shows in call `call`, for memory at `offset` of its segment number `segment`. Of words with
// another stamp nothing is believed: an old one, which a device finds that goes on after a failure, or that
// of a rank in another call, with buffers of another length.
inline constexpr int kShownOffsetBits = 38, kShownSegmentBits = 7;
constexpr std::uint64_t shown_stamp(std::uint32_t call) {
  return std::uint64_t{call} << (kShownOffsetBits + kShownSegmentBits);
}
constexpr std::uint64_t shown_word(std::uint32_t call, int segment, std::uint64_t offset) {
  return shown_stamp(call) | static_cast<std::uint64_t>(segment + 1) << kShownOffsetBits | offset;
}

struct ResolveArgs {
  // Entry i of the table.
  MPI_GDR_PORTABLE std::uint64_t address(int i, std::uint64_t word,
                                         const volatile std::uint64_t* begins) const {
    const std::uint64_t segment = word >> kShownOffsetBits & ((1u << kShownSegmentBits) - 1);
    const bool counts = (word ^ stamp) >> (kShownOffsetBits + kShownSegmentBits) == 0 && segment != 0;
    if (!counts) return 0;
    const std::uint64_t base = begins[i % ranks * segments + static_cast<int>(segment) - 1];
    return base ? base + (word & ((std::uint64_t{1} << kShownOffsetBits) - 1)) : 0;
  }

  // Of the device: two for each rank. First all Inputs in rank order, then all Outputs. 0: not within reach.
  std::uint64_t* table = nullptr;
  int ranks = 0;
  std::array<const Flag*, 2 * kMostResolved> shown{};  // as the table
  std::uint64_t stamp = 0;                             // those that count
  // By rank, in host memory: other than 0 once that rank has given up an operation of the group. What its
  // device does since is worth nothing, its buffers may be in use again, and those of all ranks once this one
  // has: then they are not within reach.
  std::array<const Flag*, kMostResolved> given_up{};
  int rank = 0;  // this one
  // Within the device's reach: where segment k of rank r begins, at [r * segments + k].
  const std::uint64_t* bases = nullptr;
  int segments = 0;
};

// What the table's entry says at execution, else another address that the host knows.
struct ResolvedSource {
  int entry = -1;            // -1: none
  std::uint64_t offset = 0;  // bytes behind it
};

// `dst` and `sources` of the ReduceArgs: where the table has no address. Every address modulo 16 is as
// aligned as the elements are.
struct ResolvedReduce {
  ReduceArgs reduce;
  const std::uint64_t* table = nullptr;
  int ranks = 0;
  const ResolvedSource* resolved = nullptr;  // as many as sources
  // The result goes `output_offset` bytes behind every address among the table's Outputs, and to dst if one
  // of them is missing. False: to dst alone.
  bool to_outputs = false;
  std::uint64_t output_offset = 0;
};

}  // namespace mpi_gdr
