// The lengths of a collective's buffers on one rank, and their aliasing. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "schedule/schedule.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr {

struct Extent {
  Buffer region = Buffer::Output;
  std::uint64_t begin = 0, end = 0;  // elements
  bool operator==(const Extent&) const = default;
  bool overlaps(const Extent& other) const {
    return region == other.region && begin < other.end && other.begin < end;
  }
};

struct Layout {
  std::array<std::uint64_t, kBufferCount> counts;  // elements, by Buffer; 0: unusable
  // In place (schedule/spec.hpp): Input starts at element `offset` of Output, or vice versa.
  enum class Alias : std::uint8_t { None, InputInOutput, OutputInInput } alias = Alias::None;
  std::uint64_t offset = 0;

  Layout(const CollectiveSpec& spec, const Schedule& schedule, bool aliased);
  Extent resolve(const Slice& slice) const;
  // Throws CheckFailure unless the slice is inside its buffer.
  void check_bounds(const Slice& slice) const;
};

constexpr bool has_alias(Collective c) { return traits(c).input != Contents::None && has_count(c); }

// "output[3..7)", "input[0..8) of rank 2"
std::string text(const Slice& slice);

}  // namespace mpi_gdr
