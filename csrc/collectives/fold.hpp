// Runs algorithms for powers of two on any number of ranks: the first ranks form pairs, of which one passes
// its values to the other and sits out (Thakur et al., section 4.5, see build.hpp). Pure values, thread-safe.
#pragma once

#include <bit>

namespace mpi_gdr::collectives {

struct Fold {
  int power;         // virtual ranks that take part: the largest power of two <= size
  int folded;        // number of pairs: ranks 2k and 2k + 1 are pair k < folded
  bool in_pair;      // this rank has a partner
  bool sits_out;     // its partner takes part with the values of both
  int partner;       // -1 without one
  int virtual_rank;  // shared by the ranks of a pair; in rank order, so that the lower block stays lower
  int favoured;      // this rank never sits out; -1: the even rank of each pair stays

  Fold(int size, int rank, int favoured_rank = -1)
      : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        folded(size - power),
        in_pair(rank < 2 * folded),
        partner(in_pair ? rank ^ 1 : -1),
        virtual_rank(in_pair ? rank / 2 : rank - folded),
        favoured(favoured_rank) {
    sits_out = actual(virtual_rank) != rank;
  }
  // The rank that acts as a virtual rank.
  int actual(int virtual_of) const {
    if (virtual_of >= folded) return virtual_of + folded;
    return 2 * virtual_of + (favoured == 2 * virtual_of + 1 ? 1 : 0);
  }
};

}  // namespace mpi_gdr::collectives
