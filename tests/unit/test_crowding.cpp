// Detection of shared cores from yields and waits, on a clock of the test.
#include "engine/crowding.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

const Crowding::Clock::time_point kBegin(1h);

}  // namespace

TEST(yields_without_another_process_are_ignored) {
  Crowding crowding(false);
  for (int i = 0; i < 1000; ++i) crowding.yielded(kBegin + i * 1us, kBegin + i * 1us + 500ns);
  CHECK(!crowding.shared(kBegin + 1ms) && !crowding.slices(kBegin + 1ms) && crowding.spins(kBegin + 1ms));
}

TEST(a_yield_to_another_process_is_remembered_for_a_while) {
  Crowding crowding(false);
  crowding.yielded(kBegin, kBegin + 10us);
  CHECK(crowding.shared(kBegin + 10us) && crowding.shared(kBegin + 19ms));
  CHECK(!crowding.slices(kBegin + 10us));
  CHECK(!crowding.shared(kBegin + 21ms));  // the neighbour has left
}

TEST(a_yield_that_cost_a_time_slice_is_distinguished) {
  Crowding crowding(false);
  crowding.yielded(kBegin, kBegin + 3ms);
  CHECK(crowding.shared(kBegin + 4ms) && crowding.slices(kBegin + 4ms));
  crowding.yielded(kBegin + 20ms, kBegin + 20ms + 10us);
  CHECK(crowding.shared(kBegin + 24ms) && !crowding.slices(kBegin + 24ms));
}

TEST(what_was_counted_is_not_forgotten) {
  const Crowding crowding(true);
  CHECK(crowding.counted() && crowding.shared(kBegin) && !crowding.slices(kBegin));
}

TEST(waits_spin_where_no_rank_shares_the_cores) {
  Crowding crowding(false);
  for (int i = 0; i < 100; ++i) {
    crowding.missed();
    CHECK(crowding.spins(kBegin));
  }
}

TEST(on_shared_cores_waits_spin_while_that_succeeds) {
  Crowding crowding(false);
  crowding.yielded(kBegin, kBegin + 10us);
  const auto now = kBegin + 1ms;
  for (int i = 0; i < 100; ++i) {
    CHECK(crowding.spins(now));
    crowding.met();
  }
  int spun = 0;
  for (int i = 0; i < 640; ++i) {
    spun += crowding.spins(now);
    crowding.missed();
  }
  CHECK(spun > 1 && spun < 100);  // now and then one tries again
  crowding.met();
  CHECK(crowding.spins(now));
}

UNIT_MAIN()
