// Heap allocations of an operation in the steady state, on the thread that issues it and waits for it.
#include <new>

#include "common/recycled.hpp"
#include "engine_world.hpp"

using namespace engine_tests;

namespace {
thread_local bool counts = false;
thread_local int allocations = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  if (counts) ++allocations;
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// The median of rank 0's last calls. Not the maximum: after losing its core a rank finds unexpected messages
// or waits in another way.
int steady_allocations(Collective collective, bool node, int size = 2) {
  WorldOptions options;
  options.node = node;
  World world(size, options);
  std::vector<int> last;  // rank 0's
  world.run_and_close([&](int r) {
    std::vector<float> in(64, 1.0f), out(64);
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t count = collective == Collective::Barrier ? 0 : 2;
      CollectiveCall call{{collective, r, size, 0, count, DataType::Float32}, in.data(), out.data()};
      if (collective == Collective::AllToAll) {
        call.spec.send_counts.assign(static_cast<std::size_t>(size), 2);
        call.spec.recv_counts = call.spec.send_counts;
      }
      std::vector<Call> calls;
      calls.emplace_back(std::move(call));
      IssueOptions issue = named("all_reduce", foreground());
      allocations = 0;
      counts = true;
      world.wait(r, world.ranks[r].group->issue(std::move(calls), std::move(issue)));
      counts = false;
      if (r == 0 && i >= 40) last.push_back(allocations);
    }
  });
  std::nth_element(last.begin(), last.begin() + 10, last.end());
  return last[10];
}

}  // namespace

TEST(operations_allocate_little_in_the_steady_state) {
  // The operation reuses the memory of an earlier one. It allocates its part and the list of parts; with
  // messages also the lists of those in flight, and a reduction's sources.
  const auto expect = [](Collective collective, int shared, int messages) {
    const int operation = kRecycles ? 0 : 1;
    CHECK(steady_allocations(collective, true) <= shared + operation);
    CHECK(steady_allocations(collective, false) <= messages + operation);
  };
  for (const Collective reduction : {Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter})
    expect(reduction, 2, 11);
  for (const Collective movement : {Collective::Broadcast, Collective::AllGather, Collective::Gather,
                                    Collective::Scatter, Collective::Barrier})
    expect(movement, 2, 9);
  expect(Collective::AllToAll, 36, 24);  // its plan depends on the counts of each pair and is not cached
}

UNIT_MAIN()
