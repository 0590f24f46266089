// Reductions on buffers of other ranks whose addresses the device looks up when the kernel runs, so that the
// hosts need not wait for each other. Each rank's device writes the location of its buffers as a word of host
// memory; resolve() turns the words of all into a table of addresses in the device's memory, which later work
// of the same queue uses.
#pragma once

#include <array>
#include <cstdint>

#include "common/portable.hpp"
#include "device/device.hpp"

namespace mpi_gdr {

inline constexpr int kMostResolved = 64;  // ranks, and sources of a ResolvedReduce

// The word of a rank in call `call`, for memory at `offset` of its segment number `segment`. A word with
// another stamp is ignored: it is an old one, read by a device that was released after a failure, or that of
// a rank in another call, with buffers of another length.
inline constexpr int kShownOffsetBits = 38, kShownSegmentBits = 7;
constexpr std::uint64_t shown_stamp(std::uint32_t call) {
  return std::uint64_t{call} << (kShownOffsetBits + kShownSegmentBits);
}
constexpr std::uint64_t shown_word(std::uint32_t call, int segment, std::uint64_t offset) {
  return shown_stamp(call) | static_cast<std::uint64_t>(segment + 1) << kShownOffsetBits | offset;
}

struct ResolveArgs {
  // Computes entry i of the table.
  MPI_GDR_PORTABLE std::uint64_t address(int i, std::uint64_t word,
                                         const volatile std::uint64_t* begins) const {
    const std::uint64_t segment = word >> kShownOffsetBits & ((1u << kShownSegmentBits) - 1);
    const bool counts = (word ^ stamp) >> (kShownOffsetBits + kShownSegmentBits) == 0 && segment != 0;
    if (!counts) return 0;
    const std::uint64_t base = begins[i % ranks * segments + static_cast<int>(segment) - 1];
    return base ? base + (word & ((std::uint64_t{1} << kShownOffsetBits) - 1)) : 0;
  }

  // In the device's memory, two entries for each rank: all Inputs in rank order, then all Outputs. 0: not
  // accessible.
  std::uint64_t* table = nullptr;
  int ranks = 0;
  std::array<const Flag*, 2 * kMostResolved> shown{};  // in the table's order
  std::uint64_t stamp = 0;                             // of valid words
  // By rank, in host memory: not 0 once that rank has abandoned an operation of the group. Its data is then
  // invalid and its buffers may be in use again, so they are not accessible. Once this rank has abandoned
  // one, no rank's are.
  std::array<const Flag*, kMostResolved> given_up{};
  int rank = 0;  // this rank
  // The address of segment k of rank r is at [r * segments + k]; accessible to the device.
  const std::uint64_t* bases = nullptr;
  int segments = 0;
};

// The address in the table's entry; if that is 0, the one in the ReduceArgs.
struct ResolvedSource {
  int entry = -1;            // -1: none
  std::uint64_t offset = 0;  // bytes behind the entry's address
};

// `dst` and `sources` of the ReduceArgs are used where the table has no address. Each address is aligned to
// the elements, or to 16 bytes if these are larger.
struct ResolvedReduce {
  ReduceArgs reduce;
  const std::uint64_t* table = nullptr;
  int ranks = 0;
  const ResolvedSource* resolved = nullptr;  // one for each source
  // True: the result goes `output_offset` bytes behind each address among the table's Outputs, and to dst if
  // one of them is missing. False: to dst only.
  bool to_outputs = false;
  std::uint64_t output_offset = 0;
};

}  // namespace mpi_gdr
