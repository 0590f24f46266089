// All-to-all over several nodes. For each receiver, the rank of a node at the receiver's place (modulo the
// node's size) is the collector: the other ranks of the node hand over their short blocks to the collector,
// which sends all of them in one message. Long blocks are sent directly. counts_of_node() must run first.
// Source: Kumar, Mamidala, Panda, "Scaling alltoall collective on multi-core systems", IPDPS 2008, where one
// leader of each node is the collector for all receivers.
#include <numeric>
#include <utility>

#include "collectives/collectives.hpp"
#include "collectives/phases.hpp"
#include "collectives/shared.hpp"
#include "common/error.hpp"

namespace mpi_gdr {
namespace collectives {
namespace {

constexpr std::uint64_t kShort = 4096;  // maximum bytes of a short block; the limit is lower with many ranks

class ByNodes {
 public:
  ByNodes(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology, const Tuning& tuning)
      : writer_(writer),
        spec_(spec),
        topology_(topology),
        here_(topology.members(topology.node(spec.rank))),
        place_(topology.place(spec.rank)),
        // Equal on all ranks: both sides of a block must agree.
        short_(std::min(kShort, tuning.staging_bytes / static_cast<std::uint64_t>(spec.size)) /
               item_size(spec.dtype)),
        shares_(tuning.node_shares && here_.size() > 1),
        blocks_(spec) {
    check_counts();
    if (shares_) writer.shared();
  }

  void write() {
    writer_.lane();
    hand_over();
    collect();
    receive();
  }

  // The long blocks, and this rank's own.
  Exchange left() const {
    Exchange left = blocks_;
    for (int r = 0; r < spec_.size; ++r)
      for (Slice* const block : {&left.sent[index(r)], &left.received[index(r)]})
        if (r != spec_.rank && is_short(block->count)) block->count = 0;
    return left;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int places() const { return static_cast<int>(here_.size()); }
  bool is_short(std::uint64_t count) const { return count <= short_; }
  // The place on this node of the rank that collects for a receiver.
  int collector(int receiver) const { return topology_.place(receiver) % places(); }
  std::uint64_t count(int place, int receiver) const {
    if (place == place_) return spec_.send_counts[index(receiver)];
    return spec_.node_counts[index(place) * index(spec_.size) + index(receiver)];
  }
  // The part of count() that another rank of the node collects: 0 or all.
  std::uint64_t handed_over(int place, int receiver) const {
    const std::uint64_t all = count(place, receiver);
    return collector(receiver) != place && is_short(all) ? all : 0;
  }

  void check_counts() const {
    const std::size_t expected = here_.size() > 1 ? here_.size() * index(spec_.size) : 0;
    if (spec_.node_counts.size() != expected)
      fail(ErrorCode::InvalidUsage, "all_to_all: node_counts has ", spec_.node_counts.size(),
           " entries, expected ", expected, " (ranks of the node times size, 0 for a rank alone)");
    for (int k = 0; k < places(); ++k) {
      const int sender = here_[index(k)];
      const std::uint64_t expects = spec_.recv_counts[index(sender)];
      if (count(k, spec_.rank) != expects)
        fail(ErrorCode::Mismatch, "rank ", sender, " sends ", count(k, spec_.rank),
             " elements to this rank, where ", expects,
             " were expected: the ranks called different collectives, or with different sizes");
    }
  }

  // Packs the blocks by collector, then by receiver: what a neighbour collects is contiguous.
  void hand_over() {
    std::vector<Slice> pieces(here_.size());
    for (int to = 0; to < spec_.size; ++to) pieces[index(collector(to))].count += handed_over(place_, to);
    const std::uint64_t all = count_of(pieces);
    Slice free = shares_ ? writer_.staging(all) : writer_.scratch(all);
    for (Slice& piece : pieces) piece = take(free, piece.count);
    std::vector<Slice> unfilled = pieces;
    for (int to = 0; to < spec_.size; ++to)
      if (const std::uint64_t count = handed_over(place_, to); count > 0)
        writer_.copy(take(unfilled[index(collector(to))], count), blocks_.sent[index(to)]);
    writer_.round();
    if (shares_) writer_.signal();
    for (int k = 0; k < places(); ++k) {
      const int neighbour = here_[index(k)];
      Slice theirs = of(piece_for_this_rank(k), neighbour);
      if (k == place_) {
        theirs = {};
      } else if (shares_) {
        if (theirs.count > 0) writer_.wait(neighbour);
      } else {
        theirs = writer_.scratch(theirs.count);
        writer_.recv(neighbour, theirs);
        writer_.send(neighbour, pieces[index(k)]);
      }
      received_.push_back(theirs);
    }
    writer_.round();
  }
  // The slice of its Staging that the rank at `place` hands over to this rank.
  Slice piece_for_this_rank(int place) const {
    Slice piece{Buffer::Staging, 0, 0};
    for (int to = 0; to < spec_.size; ++to) {
      const int by = collector(to);
      if (by < place_) piece.offset += handed_over(place, to);
      if (by == place_) piece.count += handed_over(place, to);
    }
    return piece;
  }
  static Slice take(Slice& from, std::uint64_t count) {
    const Slice first{from.buffer, from.offset, count, from.owner};
    from.offset += count;
    from.count -= count;
    return first;
  }

  // Copies what is for this rank, and sends each receiver on another node one message.
  void collect() {
    std::vector<std::pair<int, Slice>> messages;
    for (int to = 0; to < spec_.size; ++to) {
      if (collector(to) != place_) continue;
      std::vector<Slice> parts;
      for (int k = 0; k < places(); ++k) {
        Slice part = blocks_.sent[index(to)];
        if (k != place_) part = take(received_[index(k)], handed_over(k, to));
        if (to != spec_.rank && is_short(part.count)) append(parts, part);
        if (to == spec_.rank && k != place_ && part.count > 0)
          writer_.copy(blocks_.received[index(here_[index(k)])], part);
      }
      if (!parts.empty()) messages.emplace_back(to, in_one_piece(parts));
    }
    writer_.round();
    for (const auto& [to, message] : messages) writer_.send(to, message);
  }
  Slice in_one_piece(const std::vector<Slice>& parts) {
    if (parts.size() == 1 && parts[0].owner < 0) return parts[0];
    Slice whole = writer_.scratch(count_of(parts)), free = whole;
    for (const Slice& part : parts) writer_.copy(take(free, part.count), part);
    return whole;
  }
  static std::uint64_t count_of(const std::vector<Slice>& parts) {
    return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Slice& part) { return sum + part.count; });
  }

  void receive() {
    std::vector<std::pair<Slice, std::vector<Slice>>> arrivals;
    for (int node = 0; node < topology_.nodes(); ++node) {
      if (node == topology_.node(spec_.rank)) continue;
      const std::vector<int>& there = topology_.members(node);
      std::vector<Slice> parts;
      for (const int from : there)
        if (const Slice& block = blocks_.received[index(from)]; is_short(block.count)) append(parts, block);
      if (parts.empty()) continue;
      const int sender = there[index(place_) % there.size()];
      if (parts.size() == 1) {
        writer_.recv(sender, parts[0]);
      } else {
        arrivals.emplace_back(writer_.scratch(count_of(parts)), parts);
        writer_.recv(sender, arrivals.back().first);
      }
    }
    writer_.round();
    for (auto& [arrived, parts] : arrivals)
      for (const Slice& part : parts) writer_.copy(part, take(arrived, part.count));
  }

  ScheduleWriter& writer_;
  const CollectiveSpec& spec_;
  const Topology& topology_;
  const std::vector<int>& here_;  // the ranks of this node
  const int place_;               // index of this rank in here_
  const std::uint64_t short_;     // maximum elements of a short block
  const bool shares_;             // false: the ranks of this node hand over blocks by messages
  const Exchange blocks_;
  std::vector<Slice> received_;  // by place: the blocks handed over to this rank
};

}  // namespace

void all_to_all_two_level(ScheduleWriter& writer, const CollectiveSpec& spec, const Topology& topology,
                          const Tuning& tuning) {
  ByNodes by_nodes(writer, spec, topology, tuning);
  by_nodes.write();
  Tuning left = tuning;
  left.max_lanes = std::min(left.max_lanes, kMaxLanes - 1);
  exchange_pairwise(writer, spec, by_nodes.left(), left);
}

}  // namespace collectives
}  // namespace mpi_gdr
