// A rank's place in a binomial tree. Relative to the root, the subtree of rank r holds the ranks [r, r +
// reach) below the size, where reach is the lowest set bit of r (the root: all). A value, thread-safe.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

struct BinomialTree {
  struct Child {
    int rank;       // in the group
    int first;      // its first block, counted from this rank's own
    int blocks;     // of its subtree
    int until_end;  // of these, up to rank size - 1; the rest starts at rank 0
  };
  int relative;                 // 0: the root
  int parent = -1;              // in the group
  int blocks = 1;               // of the own subtree
  int until_end = 1;            // of these, up to rank size - 1
  std::uint64_t count;          // elements of a block
  std::vector<Child> children;  // nearest first

  explicit BinomialTree(const CollectiveSpec& spec)
      : relative(wrap(spec.rank - spec.root, spec.size)), count(spec.count) {
    const int p = spec.size;
    int reach = 1;
    while (reach < p && relative % (2 * reach) == 0) {
      if (relative + reach < p) {
        const int rank = wrap(spec.rank + reach, p), blocks_of = std::min(reach, p - relative - reach);
        children.push_back({rank, reach, blocks_of, std::min(blocks_of, p - rank)});
      }
      reach *= 2;
    }
    if (relative != 0) parent = wrap(spec.rank - reach, p);
    blocks = std::min(reach, p - relative);
    until_end = std::min(blocks, p - spec.rank);
  }
  // Blocks [first, first + number) of a slice that holds the own subtree's blocks.
  Slice part(const Slice& subtree, int first, int number) const {
    return {subtree.buffer, subtree.offset + static_cast<std::uint64_t>(first) * count,
            static_cast<std::uint64_t>(number) * count};
  }
};

}  // namespace mpi_gdr::collectives
