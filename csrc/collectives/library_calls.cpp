#include "collectives/library_calls.hpp"

#include <algorithm>

#include "collectives/build.hpp"
#include "common/error.hpp"

namespace mpi_gdr {
namespace {

using Kind = LibraryCall::Kind;

class Calls {
 public:
  Calls(const CollectiveSpec& spec, const Scattered& where) : spec_(spec), where_(where) {}

  std::vector<LibraryCall> build() {
    switch (spec_.collective) {
      using enum Collective;
      case AllReduce:
        add(Kind::AllReduce, 0, 0, spec_.count);
        break;
      case Reduce:
        add(Kind::Reduce, 0, 0, spec_.count, spec_.root);
        break;
      case Broadcast:
        for (const Piece& piece : pieces(where_.output, spec_.count))
          add(Kind::Broadcast, piece.offset, piece.offset, piece.count, spec_.root);
        break;
      case AllGather:
        blocks(
            where_.output, where_.input,
            [&](const Piece& all, const Piece& own, std::uint64_t count) {
              add(Kind::AllGather, own.offset, all.offset, count);
            },
            [&](const Piece& all, const Piece& own, int rank) {
              add(Kind::Broadcast, rank == spec_.rank ? own.offset : 0, all.offset, all.count, rank);
            });
        break;
      case ReduceScatter:
        blocks(
            where_.input, where_.output,
            [&](const Piece& all, const Piece& own, std::uint64_t count) {
              add(Kind::ReduceScatter, all.offset, own.offset, count);
            },
            [&](const Piece& all, const Piece& own, int rank) {
              add(Kind::Reduce, all.offset, rank == spec_.rank ? own.offset : 0, all.count, rank);
            });
        break;
      case AllToAll:
        exchange();
        break;
      case Gather:
      case Scatter:
        rooted(spec_.collective == Gather);
        break;
      case Barrier:
        fail(ErrorCode::Internal, "NCCL has no barrier");
    }
    return std::move(calls_);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  void add(Kind kind, std::uint64_t input, std::uint64_t output, std::uint64_t count, int peer = -1) {
    if (count > 0) calls_.push_back({kind, input, output, count, peer});
  }
  // This rank's pieces. `some`: an entry per rank, or one for all; empty: one piece of `count` elements.
  Pieces pieces(const std::vector<Pieces>& some, std::uint64_t count) const {
    if (some.empty()) return {{0, count}};
    return some[some.size() == 1 ? 0 : index(spec_.rank)];
  }
  // The pieces of each rank's block.
  std::vector<Pieces> by_rank(const PieceMap& all) const {
    std::vector<Pieces> cut(index(spec_.size));
    std::uint64_t at = 0;
    for (int r = 0; r < spec_.size; ++r)
      for (const std::uint64_t end = at + block_count(spec_, r); at < end; at += cut[index(r)].back().count)
        cut[index(r)].push_back({all.offset_of(at), std::min(end - at, all.contiguous(at))});
    return cut;
  }
  // Calls `even(all, own, count)` for the i-th pieces of all ranks if they follow each other, with `count` of
  // each; `one(all, own, rank)` for what is left of a rank's piece. `all`: where the pieces begin, `own`:
  // where this rank's own begins in its own buffer.
  template <typename Even, typename One>
  void blocks(const std::vector<Pieces>& of_all, const std::vector<Pieces>& of_one, Even even, One one) {
    const std::vector<Pieces> by = by_rank(PieceMap(pieces(of_all, block_offset(spec_, spec_.size))));
    const PieceMap own(pieces(of_one, block_count(spec_, spec_.rank)));
    std::size_t most = 0;
    for (const Pieces& some : by) most = std::max(most, some.size());
    std::uint64_t done = 0;  // elements of this rank's block
    for (std::size_t i = 0; i < most; ++i) {
      const auto piece = [&](int r) { return i < by[index(r)].size() ? by[index(r)][i] : Piece{}; };
      const Piece first = piece(0);
      bool follow = first.count > 0;
      for (int r = 1; r < spec_.size; ++r) {
        const Piece its = piece(r);
        follow &= its.offset == first.offset + index(r) * first.count;
        follow &= r + 1 < spec_.size ? its.count == first.count : its.count >= first.count;
      }
      const std::uint64_t each = follow ? first.count : 0;
      const std::uint64_t here = piece(spec_.rank).count;
      const Piece at = here > 0 ? Piece{own.offset_of(done), own.contiguous(done)} : Piece{};
      MPI_GDR_CHECK(here <= at.count);
      if (each > 0) even(first, at, each);
      for (int r = 0; r < spec_.size; ++r)
        if (const Piece its = piece(r); its.count > each)
          one({its.offset + each, its.count - each}, {at.offset + each, its.count - each}, r);
      done += here;
    }
  }
  void exchange() {
    const collectives::Exchange pairs(spec_);
    for (int r = 0; r < spec_.size; ++r) {
      add(Kind::Send, pairs.sent[index(r)].offset, 0, pairs.sent[index(r)].count, r);
      add(Kind::Receive, 0, pairs.received[index(r)].offset, pairs.received[index(r)].count, r);
    }
  }
  void rooted(bool to_root) {
    const std::uint64_t count = spec_.count;
    const Kind others = to_root ? Kind::Send : Kind::Receive, root = to_root ? Kind::Receive : Kind::Send;
    if (spec_.rank == spec_.root)
      for (int r = 0; r < spec_.size; ++r) add(root, index(r) * count, index(r) * count, count, r);
    add(others, 0, 0, count, spec_.root);
  }

  const CollectiveSpec& spec_;
  const Scattered& where_;
  std::vector<LibraryCall> calls_;
};

}  // namespace

std::vector<LibraryCall> library_calls(const CollectiveSpec& spec, const Scattered& where) {
  return Calls(spec, where).build();
}

}  // namespace mpi_gdr
