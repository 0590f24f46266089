// Collectives with known contents and results, for tests of ranks that share memory.
#pragma once

#include "engine_world.hpp"

namespace engine_tests {

struct Buffers {
  std::vector<float> input, output;
};

struct Arenas {  // the ranks' group memory: 16 MiB each
  explicit Arenas(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      owned.push_back(std::make_unique<shm::Arena>(std::size_t{16} << 20));
      all.push_back(owned.back().get());
    }
  }
  std::vector<std::unique_ptr<shm::Arena>> owned;
  std::vector<shm::Arena*> all;
};

// Small integers, so that sums are exact.
inline float value(int r, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<unsigned>(r) * 13) % 101);
}

// Elements that rank `from` sends to rank `to` in an all_to_all: uneven, some none.
inline std::size_t exchanged(int from, int to, std::size_t count) {
  return count * static_cast<unsigned>((from * 7 + to * 3) % 5) / 2;
}

inline int sender(int from, int to) { return from * 31 + to; }

inline CollectiveCall call_of(Collective collective, int r, int p, std::size_t count, int root, Buffers& b,
                              bool in_place) {
  CollectiveCall call{
      {collective, r, p, root, collective == Collective::Barrier ? 0 : count, DataType::Float32}};
  CollectiveSpec& spec = call.spec;
  const auto size = static_cast<std::size_t>(p), rank = static_cast<std::size_t>(r);
  const bool scatters = collective == Collective::ReduceScatter || collective == Collective::Scatter;
  const bool gathers = collective == Collective::AllGather || collective == Collective::Gather;
  std::size_t sent = scatters ? count * size : count, received = gathers ? count * size : count;
  if (collective == Collective::AllToAll) {
    sent = received = spec.count = 0;
    for (int q = 0; q < p; ++q) {
      spec.send_counts.push_back(exchanged(r, q, count));
      spec.recv_counts.push_back(exchanged(q, r, count));
      sent += spec.send_counts.back();
      received += spec.recv_counts.back();
    }
  }
  b.input.resize(sent);
  for (std::size_t i = 0; i < b.input.size(); ++i) b.input[i] = value(r, i);
  for (std::size_t q = 0, at = 0; q < spec.send_counts.size(); ++q)
    for (std::size_t i = 0; i < spec.send_counts[q]; ++i)
      b.input[at++] = value(sender(r, static_cast<int>(q)), i);
  b.output.assign(received, -1.0f);
  call.input = b.input.data();
  call.output = b.output.data();
  if (collective == Collective::Broadcast && r == root) b.output = b.input;
  if (!in_place || collective == Collective::AllToAll) return call;
  if (scatters) call.output = b.input.data() + rank * count;
  if (collective == Collective::AllReduce || collective == Collective::Reduce) {
    b.output = b.input;
    call.input = call.output = b.output.data();
  }
  if (gathers) {
    std::copy(b.input.begin(), b.input.end(), b.output.begin() + static_cast<std::ptrdiff_t>(rank * count));
    call.input = b.output.data() + rank * count;
  }
  return call;
}

inline void expect_result(const CollectiveCall& call) {
  const CollectiveSpec& spec = call.spec;
  const auto* out = static_cast<const float*>(call.output);
  const auto sum = [&](std::size_t i) {
    float all = 0;
    for (int r = 0; r < spec.size; ++r) all += value(r, i);
    return all;
  };
  const auto rank = static_cast<std::size_t>(spec.rank);
  const bool root = spec.rank == spec.root;
  std::size_t at = 0;
  for (std::size_t from = 0; from < spec.recv_counts.size(); ++from)
    for (std::size_t i = 0; i < spec.recv_counts[from]; ++i)
      CHECK(out[at++] == value(sender(static_cast<int>(from), spec.rank), i));
  const Collective c = spec.collective;
  for (std::size_t i = 0; i < spec.count; ++i) {
    if (c == Collective::AllReduce || (c == Collective::Reduce && root)) CHECK(out[i] == sum(i));
    if (c == Collective::ReduceScatter) CHECK(out[i] == sum(rank * spec.count + i));
    if (c == Collective::Broadcast) CHECK(out[i] == value(spec.root, i));
    if (c == Collective::Scatter) CHECK(out[i] == value(spec.root, rank * spec.count + i));
    if (c == Collective::AllGather || (c == Collective::Gather && root))
      for (int r = 0; r < spec.size; ++r)
        CHECK(out[static_cast<std::size_t>(r) * spec.count + i] == value(r, i));
  }
}

// Records the rank's calls of `adaptive` in order: "zero_copy" or "staged".
class Recorder : public Observer, public ExecutionObserver {
 public:
  explicit Recorder(std::chrono::milliseconds staged_sleeps = {}) : staged_sleeps_(staged_sleeps) {}
  ExecutionObserver* rounds() override { return this; }
  std::unique_ptr<RoundObserver> observe(const Schedule& schedule, DataType, int) override {
    const bool staged = schedule.algorithm == "staged";
    if (staged || schedule.algorithm == "adaptive") ran.push_back(staged ? "staged" : "zero_copy");
    if (staged) std::this_thread::sleep_for(staged_sleeps_);
    return std::make_unique<Rounds>();
  }
  std::vector<std::string> ran;  // written with the progress role, read after the call has ended

 private:
  struct Rounds : RoundObserver {
    void began(int) override {}
    void worked(int) override {}
    void ended(int, std::uint32_t, const Round&) override {}
  };
  const std::chrono::milliseconds staged_sleeps_;
};

}  // namespace engine_tests
