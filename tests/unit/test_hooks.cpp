// Hooks that torch registers with a backend.
#include "c10d/hooks.hpp"
#include "test.hpp"

using mpi_gdr::torch_binding::Hooks;

TEST(hooks_are_called_in_order_of_their_numbers_until_they_are_removed) {
  Hooks<int> hooks;
  std::vector<int> called;
  hooks.add(2, [&](int value) { called.push_back(2 * value); });
  hooks.add(1, [&](int value) { called.push_back(value); });
  hooks.call(5);
  hooks.remove(1);
  hooks.call(7);
  CHECK((called == std::vector<int>{5, 10, 14}) && hooks.any());
}

TEST(call_once_calls_each_hook_once) {
  Hooks<> hooks;
  int first = 0, second = 0;
  hooks.add(1, [&] {
    ++first;
    hooks.call_once();  // as a hook that aborts the group
  });
  hooks.call_once();
  CHECK(!hooks.any());
  hooks.add(2, [&] { ++second; });
  hooks.call_once();
  CHECK(first == 1 && second == 1);
}

UNIT_MAIN()
