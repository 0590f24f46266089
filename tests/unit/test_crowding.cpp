// Detection of shared cores from yields and waits; the tests pass the times.
#include "engine/crowding.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

const Crowding::Clock::time_point kBegin(1h);

void switch_twice(Crowding& crowding, std::chrono::milliseconds at = {}) {
  for (int i = 0; i < 2; ++i) crowding.yielded(kBegin + at + i * 20us, kBegin + at + i * 20us + 10us, true);
}

}  // namespace

TEST(yields_without_another_process_are_ignored) {
  Crowding crowding(false);
  for (int i = 0; i < 1000; ++i) crowding.yielded(kBegin + i * 1us, kBegin + i * 1us + 500ns, false);
  crowding.yielded(kBegin + 1ms, kBegin + 4ms, false);  // interrupts, no switch
  CHECK(!crowding.shared(kBegin + 4ms) && !crowding.yields_cost_slices(kBegin + 4ms) &&
        crowding.spins(kBegin + 4ms));
}

TEST(rare_switches_to_kernel_threads_are_ignored) {
  Crowding crowding(false);
  for (int i = 0; i < 10; ++i) crowding.yielded(kBegin + i * 4ms, kBegin + i * 4ms + 10us, true);
  CHECK(!crowding.shared(kBegin + 37ms));
}

TEST(yields_to_another_process_are_remembered_for_a_while) {
  Crowding crowding(false);
  switch_twice(crowding);
  CHECK(crowding.shared(kBegin + 10us) && crowding.shared(kBegin + 19ms));
  CHECK(!crowding.yields_cost_slices(kBegin + 10us));
  CHECK(!crowding.shared(kBegin + 21ms));  // the other process has left
}

TEST(a_yield_that_cost_a_time_slice_is_distinguished) {
  Crowding crowding(false);
  crowding.yielded(kBegin, kBegin + 3ms, true);
  CHECK(crowding.shared(kBegin + 4ms) && crowding.yields_cost_slices(kBegin + 4ms));
  switch_twice(crowding, 20ms);
  CHECK(crowding.shared(kBegin + 24ms) && !crowding.yields_cost_slices(kBegin + 24ms));
}

TEST(known_oversubscription_does_not_expire) {
  const Crowding crowding(true);
  CHECK(crowding.oversubscribed() && crowding.shared(kBegin) && !crowding.yields_cost_slices(kBegin));
}

TEST(waits_spin_where_no_rank_shares_the_cores) {
  Crowding crowding(false);
  for (int i = 0; i < 100; ++i) {
    crowding.spin_failed();
    CHECK(crowding.spins(kBegin));
  }
}

TEST(on_shared_cores_waits_spin_while_that_succeeds) {
  Crowding crowding(false);
  switch_twice(crowding);
  const auto now = kBegin + 1ms;
  for (int i = 0; i < 100; ++i) {
    CHECK(crowding.spins(now));
    crowding.spin_succeeded();
  }
  int spun = 0;
  for (int i = 0; i < 640; ++i) {
    spun += crowding.spins(now);
    crowding.spin_failed();
  }
  CHECK(spun > 1 && spun < 100);  // a wait spins occasionally
  crowding.spin_succeeded();
  CHECK(crowding.spins(now));
}

UNIT_MAIN()
