// The semantics of the simulated device. Kernels: test_kernels.cpp.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "common/error.hpp"
#include "device/device.hpp"
#include "device/sim/sim_device.hpp"
#include "device/sim/sim_queue.hpp"
#include "test.hpp"

using namespace mpigdr;

TEST(sim_queue_runs_in_order) {
  SimDevice device({.hardware_queues = 1, .max_delay = std::chrono::microseconds(100)});
  const auto queue = device.make_queue();
  int a = 1, b = 0, c = 0;
  queue->copy(&b, &a, sizeof a);
  const void* sources[] = {&a, &b};
  queue->reduce({DataType::Int32, ReduceOp::Sum, &c, sources, 2, 1});
  sources[0] = sources[1] = nullptr;  // the array was copied
  queue->copy(&a, &c, sizeof a);
  queue->synchronize();
  CHECK(a == 2 && b == 1 && c == 2);
}

TEST(sim_flags_join_host_and_device) {
  SimDevice device;
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(2);
  int source = 0, dst = 0;
  queue->wait_flag(&flags[0], 5);
  queue->copy(&dst, &source, sizeof dst);
  queue->write_flag(&flags[1], 9);
  source = 42;  // before the release below, so the copy must see it
  flags[0].store(4, std::memory_order_release);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(flags[1].load(std::memory_order_acquire) == 0);
  flags[0].store(5, std::memory_order_release);
  while (flags[1].load(std::memory_order_acquire) != 9) std::this_thread::yield();
  CHECK(dst == 42);
}

TEST(sim_order_joins_queues) {
  for (const int hardware_queues : {1, 2}) {
    SimDevice device({.hardware_queues = hardware_queues});
    const auto before = device.make_queue(), after = device.make_queue();
    const auto flags = device.make_flags(1);
    int source = 7, middle = 0, dst = 0;
    before->wait_flag(&flags[0], 1);
    before->copy(&middle, &source, sizeof source);
    device.order(*before, *after);
    after->copy(&dst, &middle, sizeof dst);
    flags[0].store(1, std::memory_order_release);
    after->synchronize();
    CHECK(dst == 7);
  }
}

TEST(sim_queues_block_each_other_only_if_they_share_hardware) {
  for (const int hardware_queues : {1, 2}) {
    SimDevice device({.hardware_queues = hardware_queues});
    const auto first = device.make_queue(), second = device.make_queue();
    const auto flags = device.make_flags(2);
    first->wait_flag(&flags[0], 1);
    second->write_flag(&flags[1], 1);
    if (hardware_queues == 2) second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == (hardware_queues == 2 ? 1u : 0u));
    flags[0].store(1, std::memory_order_release);
    first->synchronize();  // its wait reads a flag that ends with this scope
    second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == 1);
  }
}

TEST(sim_allocation_waits_for_the_device) {
  SimDevice device({.hardware_queues = 2});
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(1);
  queue->wait_flag(&flags[0], 1);
  std::atomic<bool> allocated{false};
  std::thread other([&] {
    void* memory = device.allocate(100);
    allocated.store(true, std::memory_order_release);
    device.release(memory);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const bool too_early = allocated.load(std::memory_order_acquire);
  flags[0].store(1, std::memory_order_release);
  other.join();
  CHECK(!too_early && allocated.load(std::memory_order_acquire));
  int stranger = 0;
  CHECK_THROWS(device.release(&stranger), Error, "not from allocate()");
}

TEST(sim_names_the_flag_of_a_hang) {
  SimDevice device({.deadline = std::chrono::milliseconds(30)});
  const auto queue = device.make_queue();
  const auto flags = device.make_flags(4);
  flags[2].store(1, std::memory_order_release);
  int a = 1, b = 0;
  queue->wait_flag(&flags[2], 3);
  queue->copy(&b, &a, sizeof a);
  CHECK_THROWS(queue->synchronize(), Error, "flag 2 of a block of 4 to reach 3, it is 1");
  CHECK_THROWS(device.check(), Error, "flag 2");
  CHECK(b == 0);
}

TEST(sim_reports_a_kernel_that_throws) {
  SimDevice device;
  const auto queue = device.make_queue();
  std::uint8_t v = 0;
  const void* source = &v;
  queue->reduce({DataType::Bool, ReduceOp::Avg, &v, &source, 1, 1});
  CHECK_THROWS(queue->synchronize(), Error, "op=avg is not defined on dtype=bool");
}

TEST(sim_reports_work_that_throws) {
  SimDevice device;
  SimQueue queue(device, 0);
  bool ran = false;
  queue.enqueue([] { throw std::runtime_error("no such thing"); });
  queue.enqueue([&ran] { ran = true; });
  CHECK_THROWS(queue.synchronize(), Error, "no such thing");
  CHECK(!ran);
}

TEST(sim_marks_are_places_in_a_line) {
  SimDevice device({.hardware_queues = 2});
  SimQueue first(device, 0), second(device, 1), beside_first(device, 0);
  const auto flags = device.make_flags(2);
  CHECK(SimMark().reached() && first.idle());
  const SimMark early = first.mark();
  first.wait_flag(&flags[0], 1);
  const SimMark late = first.mark();
  int value = 0;
  second.wait(early);
  second.enqueue([&value] { value = 1; });
  second.synchronize();
  CHECK(value == 1 && early.reached() && !late.reached() && !first.idle());
  second.wait(late);
  second.enqueue([&value] { value = 2; });
  CHECK(value == 1 && !second.idle());
  flags[0].store(1, std::memory_order_release);
  beside_first.wait_flag(&flags[1], 1);
  first.synchronize();  // not what is behind it in the same hardware queue
  second.synchronize();
  CHECK(value == 2 && first.idle() && !beside_first.idle());
  // What was adopted is the same stream.
  const auto adopted = device.adopt(static_cast<DeviceQueue*>(&second));
  adopted->wait_flag(&flags[1], 1);
  CHECK(!second.idle());
  flags[1].store(1, std::memory_order_release);
  beside_first.synchronize();
  second.synchronize();
}

UNIT_MAIN()
