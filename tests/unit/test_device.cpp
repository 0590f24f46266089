// Devices of the software CUDA in one process, through csrc/device/cuda. Kernels: test_kernels.cpp.
#include "device/device.hpp"
#include "software_device.hpp"
#include "test.hpp"

using namespace mpi_gdr;

TEST(queue_runs_in_order) {
  SoftwareDevice device({.queues = 1, .delay_us = 100});
  const auto queue = device.make_queue();
  int a = 1, b = 0, c = 0;
  queue->copy(&b, &a, sizeof a);
  const void* sources[] = {&a, &b};
  queue->reduce({DataType::Int32, ReduceOp::Sum, &c, sources, 2, 1});
  sources[0] = sources[1] = nullptr;  // the array has been copied
  queue->copy(&a, &c, sizeof a);
  queue->synchronize();
  CHECK(a == 2 && b == 1 && c == 2);
}

TEST(order_joins_queues) {
  for (const std::uint64_t hardware_queues : {1, 2}) {
    SoftwareDevice device({.queues = hardware_queues});
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

TEST(queues_block_each_other_only_if_they_share_hardware) {
  for (const std::uint64_t hardware_queues : {1, 2}) {
    SoftwareDevice device({.queues = hardware_queues});
    const auto first = device.make_queue(), second = device.make_queue();
    const auto flags = device.make_flags(2);
    first->wait_flag(&flags[0], 1);
    second->write_flag(&flags[1], 1);
    if (hardware_queues == 2) second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == (hardware_queues == 2 ? 1u : 0u));
    flags[0].store(1, std::memory_order_release);
    first->synchronize();  // its wait reads a flag of this scope
    second->synchronize();
    CHECK(flags[1].load(std::memory_order_acquire) == 1);
  }
}

TEST(allocation_waits_for_the_device) {
  SoftwareDevice device({.queues = 2});
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
}

TEST(a_queue_is_synchronized_alone_and_adopted_is_the_same) {
  SoftwareDevice device({.queues = 2});
  const auto first = device.make_queue(), second = device.make_queue(), beside_first = device.make_queue();
  const auto flags = device.make_flags(2);
  first->wait_flag(&flags[0], 1);
  CHECK(!device.idle(*first) && device.idle(*second));
  flags[0].store(1, std::memory_order_release);
  beside_first->wait_flag(&flags[1], 1);
  first->synchronize();  // does not wait for later work of the same hardware queue
  CHECK(device.idle(*first) && !device.idle(*beside_first));
  const auto adopted = device.adopt(second->native());
  adopted->wait_flag(&flags[1], 1);
  CHECK(!device.idle(*second));
  flags[1].store(1, std::memory_order_release);
  beside_first->synchronize();
  second->synchronize();
}

// Two devices stand for two processes.
TEST(devices_see_each_others_memory_at_addresses_of_their_own) {
  SoftwareDevice owner, other;
  CHECK(owner.identity() != other.identity());
  auto* const memory = static_cast<int*>(owner.allocate(sizeof(int)));
  const std::string ticket = owner.export_memory(memory);
  auto* const seen = static_cast<int*>(other.import_memory(ticket));
  CHECK(seen != memory);
  *memory = 5;
  CHECK(*seen == 5);
  other.release_imported(seen);
  owner.release(memory);
  CHECK_THROWS(other.import_memory(ticket), Error, "cudaIpcOpenMemHandle");
}

UNIT_MAIN()
