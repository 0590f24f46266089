// Limits the driver calls of an all_reduce, since no other test notices too many.
#include "counted.hpp"

using namespace fakecuda_test;

namespace {

constexpr std::uint64_t kBytes = 4000;

void on_two_ranks(const CountedCall& call, const std::function<void(const Counts&, const Counts&)>& look) {
  for (const BothCounts& rank : count_on_ranks(2, call, std::chrono::seconds(50)))
    look(rank.at_once, rank.in_graph);
}

}  // namespace

TEST(a_small_all_reduce) {
  on_two_ranks({"flag", "flag", kBytes / 4, false}, [](const Counts& at_once, const Counts& in_graph) {
    // The copy to staging memory is a kernel, too: cudaMemcpyAsync would take the host twice as long.
    CHECK(at_once.calls == 11 && at_once.launches == 2 && at_once.waits == 0);
    CHECK(in_graph.waits == 0);
    for (const Counts& counts : {at_once, in_graph}) {
      CHECK(counts.peer_read == kBytes && counts.peer_written == 0);
      CHECK(counts.read >= 2 * kBytes && counts.written >= 2 * kBytes);
    }
  });
}

TEST(no_call_of_the_steady_state_waits_for_the_device) {
  on_two_ranks({"staged", "staged", 20000, false}, [](const Counts& at_once, const Counts& in_graph) {
    CHECK(at_once.calls == 15 && at_once.waits == 0 && in_graph.waits == 0);
  });
  on_two_ranks({"group memory", "staged", 20000, true}, [](const Counts& at_once, const Counts& in_graph) {
    CHECK(at_once.calls == 15 && at_once.waits == 0 && in_graph.waits == 0);
  });
}

// For each element one rank reads the other's and writes the result there: nothing moves twice.
TEST(group_memory_is_moved_once) {
  Counts all;
  on_two_ranks({"group memory", "staged", kBytes / 4, true}, [&](const Counts& at_once, const Counts&) {
    all.read += at_once.read;
    all.peer_read += at_once.peer_read;
    all.peer_written += at_once.peer_written;
  });
  CHECK(all.peer_read == kBytes && all.peer_written == kBytes);
  CHECK(all.read >= kBytes && all.read < 2 * kBytes);  // and the other's addresses
}

UNIT_MAIN()
