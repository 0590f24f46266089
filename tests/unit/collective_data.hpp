// Collectives with known results.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/collectives.hpp"
#include "execution/execution.hpp"
#include "schedule/through_host.hpp"

namespace stream_test {

using namespace mpi_gdr;

using Element = std::int32_t;

inline Element value(int rank, std::uint64_t i, int salt) {
  return static_cast<Element>((rank + 2) * 1000 + static_cast<int>(i % 911) + 7 * salt);
}

inline std::uint64_t pair_count(int from, int to, std::uint64_t count) {
  return count * static_cast<std::uint64_t>((from + 2 * to) % 3);  // uneven, some are zero
}

inline CollectiveSpec make_spec(Collective collective, int rank, int size, std::uint64_t count, int root) {
  const bool counted = collective != Collective::Barrier && collective != Collective::AllToAll;
  CollectiveSpec spec{collective,          rank,           size, has_root(collective) ? root : 0,
                      counted ? count : 0, DataType::Int32};
  if (collective == Collective::AllToAll)
    for (int r = 0; r < size; ++r) {
      spec.send_counts.push_back(pair_count(rank, r, count));
      spec.recv_counts.push_back(pair_count(r, rank, count));
    }
  return spec;
}

// `count`: as in make_spec().
inline void place_on(const std::vector<int>& nodes, std::uint64_t count, CollectiveSpec& spec) {
  spec.topology = std::make_shared<const Topology>(nodes);
  const auto& neighbours = spec.topology->members(spec.topology->node(spec.rank));
  if (spec.collective != Collective::AllToAll || neighbours.size() == 1) return;
  for (const int from : neighbours)
    for (int to = 0; to < spec.size; ++to) spec.node_counts.push_back(pair_count(from, to, count));
}

struct Data {
  std::vector<Element> input, expected;
  bool in_place = false;  // the collective uses only its output (broadcast)
};

inline Data make_data(const CollectiveSpec& spec, std::uint64_t count, int salt) {
  const int p = spec.size, rank = spec.rank;
  const auto size = static_cast<std::uint64_t>(p);
  Data data;
  const auto fill = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) data.input.push_back(value(rank, i, salt));
  };
  const auto expect = [&](int r, std::uint64_t first, std::uint64_t n) {
    for (std::uint64_t i = first; i < first + n; ++i) data.expected.push_back(value(r, i, salt));
  };
  const auto expect_sums = [&](std::uint64_t first) {
    for (std::uint64_t i = first; i < first + count; ++i) {
      Element total = 0;
      for (int r = 0; r < p; ++r) total += value(r, i, salt);
      data.expected.push_back(total);
    }
  };
  const std::uint64_t own = static_cast<std::uint64_t>(rank) * count;
  const bool root = rank == spec.root;
  switch (spec.collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
      fill(count);
      if (spec.collective == Collective::AllReduce || root) expect_sums(0);
      break;
    case Collective::Broadcast:
      fill(count);
      data.in_place = true;
      expect(spec.root, 0, count);
      break;
    case Collective::AllGather:
    case Collective::Gather:
      fill(count);
      for (int r = 0; (spec.collective == Collective::AllGather || root) && r < p; ++r) expect(r, 0, count);
      break;
    case Collective::ReduceScatter:
      fill(size * count);
      expect_sums(own);
      break;
    case Collective::AllToAll:
      fill(std::accumulate(spec.send_counts.begin(), spec.send_counts.end(), std::uint64_t{0}));
      for (int r = 0; r < p; ++r) {
        std::uint64_t first = 0;  // offset of the block for this rank in rank r's input
        for (int to = 0; to < rank; ++to) first += pair_count(r, to, count);
        expect(r, first, spec.recv_counts[r]);
      }
      break;
    case Collective::Scatter:
      if (root) fill(size * count);
      expect(spec.root, own, count);
      break;
    case Collective::Barrier:
      break;
  }
  return data;
}

// An operation without its memory.
struct Planned {
  // `index`: its number in a sequence. `nodes`: of the ranks, for two-level algorithms. `by_host`: messages
  // through host memory.
  Planned(const Algorithm& algorithm, int rank, const std::vector<int>& nodes, std::uint64_t count, int index,
          bool by_host) {
    const int size = static_cast<int>(nodes.size());
    spec = make_spec(algorithm.collective, rank, size, count, index % size);
    if (algorithm.two_level) place_on(nodes, count, spec);
    data = make_data(spec, count, index);
    schedule = algorithm.build(spec, {.chunk_bytes = 64, .max_lanes = 3});
    if (by_host) schedule = through_host(*schedule);
    binding.dtype = DataType::Int32;
    binding.channel = Channel::Accelerator;
    binding.tag_base = (index % 500) * kMaxLanes;
  }

  CollectiveSpec spec;
  Data data;
  SchedulePtr schedule;
  Binding binding;
};

// Without the bruck all_to_all, which needs blocks of one size.
inline std::vector<Algorithm> scheduled_algorithms(const char* only = nullptr) {
  std::vector<Algorithm> found;
  for (const Algorithm& algorithm : algorithms())
    if (!algorithm.native() && !algorithm.shared &&
        !(algorithm.collective == Collective::AllToAll && std::string(algorithm.name) == "bruck") &&
        (!only || std::strcmp(name(algorithm.collective).data(), only) == 0))
      found.push_back(algorithm);
  return found;
}

}  // namespace stream_test
