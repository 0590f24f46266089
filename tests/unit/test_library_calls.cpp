// Collectives and phases as NCCL calls: the calls of all ranks match and compute the collective.
#include <functional>
#include <map>
#include <numeric>

#include "collectives/library_calls.hpp"
#include "collectives/phases.hpp"
#include "collectives/planner.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

using Numbers = std::vector<std::int64_t>;
using Kind = LibraryCall::Kind;

// Simulates one group of NCCL calls on all ranks, with sums. Buffers may overlap as nccl.h allows.
void run(const std::vector<std::vector<LibraryCall>>& calls, const std::vector<Numbers*>& inputs,
         const std::vector<Numbers*>& outputs) {
  const std::size_t ranks = calls.size();
  std::map<std::pair<int, int>, std::vector<Numbers>> messages;
  std::vector<std::function<void()>> writes;  // after all reads
  const auto part = [](const Numbers& all, std::uint64_t at, std::uint64_t count) {
    CHECK(at + count <= all.size());
    return Numbers(all.begin() + static_cast<std::ptrdiff_t>(at),
                   all.begin() + static_cast<std::ptrdiff_t>(at + count));
  };
  const auto write = [&](std::size_t rank, std::uint64_t at, Numbers what) {
    CHECK(at + what.size() <= outputs[rank]->size());
    writes.push_back([to = outputs[rank], at, what = std::move(what)] {
      std::ranges::copy(what, to->begin() + static_cast<std::ptrdiff_t>(at));
    });
  };
  const auto sum = [&](std::size_t i, std::uint64_t count, std::uint64_t skip = 0) {
    Numbers sums(count);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Numbers one = part(*inputs[r], calls[r][i].input + skip, count);
      std::ranges::transform(sums, one, sums.begin(), std::plus());
    }
    return sums;
  };
  for (std::size_t r = 0; r < ranks; ++r)
    for (const LibraryCall& call : calls[r])
      if (call.kind == Kind::Send)
        messages[{static_cast<int>(r), call.peer}].push_back(part(*inputs[r], call.input, call.count));
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t i = 0;
    for (const LibraryCall& call : calls[r]) {
      const auto root = static_cast<std::size_t>(call.peer);
      if (call.kind == Kind::Receive) {
        auto& sent = messages[{call.peer, static_cast<int>(r)}];
        CHECK(!sent.empty() && sent.front().size() == call.count);
        write(r, call.output, sent.front());
        sent.erase(sent.begin());
      } else if (call.kind != Kind::Send) {
        for (const auto& theirs : calls)  // NCCL would hang otherwise
          CHECK(i < theirs.size() && theirs[i].kind == call.kind && theirs[i].count == call.count &&
                theirs[i].peer == call.peer);
        if (call.kind == Kind::AllReduce) write(r, call.output, sum(i, call.count));
        if (call.kind == Kind::ReduceScatter) write(r, call.output, sum(i, call.count, r * call.count));
        if (call.kind == Kind::Reduce && root == r) write(r, call.output, sum(i, call.count));
        if (call.kind == Kind::Broadcast)
          write(r, call.output, part(*inputs[root], calls[root][i].input, call.count));
        if (call.kind == Kind::AllGather)
          for (std::size_t k = 0; k < ranks; ++k)
            write(r, call.output + k * call.count, part(*inputs[k], calls[k][i].input, call.count));
      }
      ++i;
    }
  }
  for (const auto& [pair, left] : messages) CHECK(left.empty());
  for (const auto& now : writes) now();
}

std::int64_t value(int rank, std::uint64_t i) { return 1000 * (rank + 1) + static_cast<std::int64_t>(i); }

Numbers filled(int rank, std::uint64_t count) {
  Numbers all(count);
  for (std::uint64_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}

CollectiveSpec spec_of(Collective collective, int rank, int size, std::uint64_t count,
                       std::vector<std::uint64_t> counts = {}) {
  CollectiveSpec spec{collective, rank, size};
  spec.count = count;
  spec.counts = std::move(counts);
  spec.root = size - 1;
  spec.dtype = DataType::Int64;
  return spec;
}

struct World {
  std::vector<Numbers> inputs, outputs;
  std::vector<std::vector<LibraryCall>> calls;
  std::vector<CollectiveSpec> specs;

  World(Collective collective, int size, std::uint64_t count, std::vector<std::uint64_t> counts = {}) {
    for (int r = 0; r < size; ++r) {
      CollectiveSpec spec = spec_of(collective, r, size, count, counts);
      if (collective == Collective::AllToAll)
        for (int peer = 0; peer < size; ++peer) {
          spec.send_counts.push_back(count * static_cast<unsigned>((r + 2 * peer) % 3));
          spec.recv_counts.push_back(count * static_cast<unsigned>((peer + 2 * r) % 3));
        }
      inputs.push_back(filled(r, input_count(spec)));
      outputs.push_back(collective == Collective::Broadcast ? filled(r, count)
                                                            : Numbers(output_count(spec), -1));
      calls.push_back(library_calls(spec));
      specs.push_back(spec);
    }
    std::vector<Numbers*> in, out;
    for (auto& one : collective == Collective::Broadcast ? outputs : inputs) in.push_back(&one);
    for (auto& one : outputs) out.push_back(&one);
    run(calls, in, out);
  }
};

// The sum of value(r, i) over all ranks.
std::int64_t total(int size, std::uint64_t i) {
  std::int64_t sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i);
  return sum;
}

const std::vector<std::uint64_t> kUneven[] = {{3, 3, 3}, {2, 2, 5}, {5, 0, 2},
                                              {0, 0, 4}, {4, 0, 0}, {0, 0, 0}};

TEST(every_collective_is_right) {
  for (const int size : {1, 2, 3, 8})
    for (const std::uint64_t count : {1u, 5u}) {
      const World reduced(Collective::AllReduce, size, count), sent(Collective::Broadcast, size, count),
          to_root(Collective::Reduce, size, count), gathered(Collective::AllGather, size, count),
          scattered(Collective::ReduceScatter, size, count), collected(Collective::Gather, size, count),
          given(Collective::Scatter, size, count);
      const int root = size - 1;
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        for (std::uint64_t i = 0; i < count; ++i) {
          CHECK(reduced.outputs[at][i] == total(size, i));
          CHECK(sent.outputs[at][i] == value(root, i));
          CHECK(to_root.outputs[static_cast<std::size_t>(root)][i] == total(size, i));
          CHECK(scattered.outputs[at][i] == total(size, at * count + i));
          CHECK(given.outputs[at][i] == value(root, at * count + i));
          for (int k = 0; k < size; ++k) {
            CHECK(gathered.outputs[at][static_cast<std::size_t>(k) * count + i] == value(k, i));
            CHECK(
                collected.outputs[static_cast<std::size_t>(root)][static_cast<std::size_t>(k) * count + i] ==
                value(k, i));
          }
        }
      }
      for (const World* world : {&reduced, &sent, &to_root, &gathered, &scattered})
        CHECK(world->calls[0].size() == 1);
    }
}

TEST(uneven_blocks_are_right) {
  for (const auto& counts : kUneven) {
    const World gathered(Collective::AllGather, 3, 0, counts),
        scattered(Collective::ReduceScatter, 3, 0, counts);
    std::uint64_t before = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::uint64_t i = 0; i < counts[k]; ++i) {
        for (std::size_t r = 0; r < 3; ++r)
          CHECK(gathered.outputs[r][before + i] == value(static_cast<int>(k), i));
        CHECK(scattered.outputs[k][i] == total(3, before + i));
      }
      before += counts[k];
    }
  }
  CHECK(World(Collective::AllGather, 3, 0, {3, 3, 3}).calls[0].size() == 1);
  CHECK(World(Collective::AllGather, 3, 0, {2, 2, 5}).calls[0].size() == 2);
}

TEST(an_exchange_is_right) {
  for (const int size : {1, 2, 5}) {
    const World world(Collective::AllToAll, size, 4);
    for (int r = 0; r < size; ++r) {
      std::uint64_t at = 0;
      for (int from = 0; from < size; ++from) {
        const auto& sent = world.specs[static_cast<std::size_t>(from)].send_counts;
        const std::uint64_t begin = std::accumulate(sent.begin(), sent.begin() + r, std::uint64_t{0});
        for (std::uint64_t i = 0; i < sent[static_cast<std::size_t>(r)]; ++i)
          CHECK(world.outputs[static_cast<std::size_t>(r)][at++] == value(from, begin + i));
      }
      CHECK(at == world.outputs[static_cast<std::size_t>(r)].size());
    }
  }
}

TEST(a_barrier_is_refused) {
  CHECK_THROWS(library_calls(spec_of(Collective::Barrier, 0, 2, 0)), Error, "NCCL has no barrier");
}

// Runs only the phases inside nodes, on inputs that the test fills.
TEST(phases_inside_nodes_make_equal_calls) {
  const std::vector<std::vector<int>> placements = {
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2}};
  for (const auto& nodes : placements)
    for (const Collective collective :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast})
      for (const std::uint64_t count : {7u, 100000u}) {
        const auto topology = std::make_shared<const Topology>(nodes);
        const int size = topology->size();
        if (!has_phases(spec_of(collective, 0, size, count), *topology)) continue;
        std::vector<Phases> made;
        Tuning tuning;
        tuning.chunk_bytes = 1024;
        for (int r = 0; r < size; ++r) {
          CollectiveSpec spec = spec_of(collective, r, size, count);
          spec.topology = topology;
          made.push_back(phases_of(spec, *topology, Phase::Kind::Library, tuning, tuning));
        }
        for (int node = 0; node < topology->nodes(); ++node) {
          const std::vector<int>& members = topology->members(node);
          if (members.size() == 1) continue;
          std::vector<std::vector<const Phase*>> inside(members.size());
          for (std::size_t m = 0; m < members.size(); ++m)
            for (const Phase& phase : made[static_cast<std::size_t>(members[m])].phases)
              if (phase.kind == Phase::Kind::Library) inside[m].push_back(&phase);
          CHECK(!inside[0].empty());
          for (std::size_t i = 0; i < inside[0].size(); ++i) {
            const std::uint64_t enough = static_cast<unsigned>(size) * count + made[0].scratch_count;
            std::vector<Numbers> memory(2 * members.size());
            std::vector<std::vector<LibraryCall>> calls;
            std::vector<Numbers*> in, out;
            for (std::size_t m = 0; m < members.size(); ++m) {
              CHECK(inside[m].size() == inside[0].size());
              const Phase& phase = *inside[m][i];
              memory[2 * m] = filled(members[m], enough);
              memory[2 * m + 1] = Numbers(enough);
              in.push_back(&memory[2 * m]);
              out.push_back(phase.input == phase.output ? in.back() : &memory[2 * m + 1]);
              calls.push_back(*phase.calls);
            }
            run(calls, in, out);
          }
        }
      }
}

}  // namespace

TEST(rows_of_the_user_are_detected) {
  const auto env_of = [](const char* variable, const char* value) {
    return Env([=](const char* name) { return std::string_view(name) == variable ? value : nullptr; });
  };
  const CollectiveSpec short_one = spec_of(Collective::AllReduce, 0, 2, 10),
                       long_one = spec_of(Collective::AllReduce, 0, 2, 100'000);
  const Planner forced(env_of("MPI_GDR_ALLREDUCE_ALGO", "staged"));
  CHECK(forced.has_user_row(short_one) && forced.has_user_row(long_one));
  CHECK(!forced.has_user_row(spec_of(Collective::Reduce, 0, 2, 10)));
  const Planner some(env_of("MPI_GDR_SELECT", "all_reduce:0-4K:staged"));
  CHECK(some.has_user_row(short_one) && !some.has_user_row(long_one));
  CHECK(!Planner(env_of("", "")).has_user_row(short_one));
}

UNIT_MAIN()
