// Group memory of a device: allocation, and reuse of freed memory.
#include "counting_device.hpp"
#include "random_blocks.hpp"

using namespace mpi_gdr;
using ipc::DeviceArena;

TEST(blocks_are_apart_and_come_back) {
  CountingDevice device;
  DeviceArena arena(device, 2 * DeviceArena::kLeastSegment);
  unit::use_random_blocks(arena, DeviceArena::kAlignment, 2 * kMiB, [&](std::size_t bytes, unsigned random) {
    static const char streams[3] = {};
    void* const memory = arena.allocate(bytes, &streams[random % 3]);
    if (random / 3 % 10 == 0) arena.share_with_streams(memory);
    return memory;
  });
  const int segments = arena.segments();
  CHECK(segments == 2 && segments == device.allocations && device.synchronizations > 0);
  std::vector<void*> whole;
  for (int i = 0; i < segments; ++i) whole.push_back(arena.allocate(arena.segment(i).bytes));
  CHECK(arena.segments() == segments && arena.in_use() == arena.reserved());
  for (void* memory : whole) arena.free(memory);
  CHECK_THROWS(arena.free(static_cast<char*>(whole[0]) + 1), Error, "is false");
}

TEST(freed_memory_is_used_again_in_the_order_of_its_stream) {
  CountingDevice device;
  DeviceArena arena(device, 2 * DeviceArena::kLeastSegment);
  constexpr std::size_t kHalf = DeviceArena::kLeastSegment / 2;
  const char streams[2] = {};
  auto* first = static_cast<std::byte*>(arena.allocate(kHalf, &streams[0]));
  auto* second = static_cast<std::byte*>(arena.allocate(kHalf, &streams[0]));
  // Pending work of the device still reads them.
  const auto queue = device.make_queue();
  const auto flag = device.make_flags(1);
  queue->wait_flag(&flag[0], 1);
  arena.free(first);
  CHECK(arena.allocate(kHalf, &streams[0]) == first);
  // Adjacent freed blocks merge, and a smaller allocation leaves the remainder.
  arena.free(second);
  arena.free(first);
  CHECK(arena.allocate(2 * kHalf, &streams[0]) == first && arena.segments() == 1);
  arena.free(first);
  CHECK(arena.allocate(kMiB, &streams[0]) == first && arena.allocate(kMiB, &streams[0]) == first + kMiB);
  // None of that waited for the device. While a segment fits, another stream's pending memory is not reused.
  flag[0].store(1);
  arena.free(first);
  void* const other = arena.allocate(kMiB, &streams[1]);
  CHECK(arena.find(other, 1)->segment == 1 && device.synchronizations == 0);
  // Unused memory serves every stream, also merged with freed memory.
  arena.free(other);
  void* const most = arena.allocate(2 * kHalf - kMiB, &streams[1]);
  void* const rest = arena.allocate(kMiB, &streams[1]);
  CHECK(most == other && rest == static_cast<std::byte*>(most) + 2 * kHalf - kMiB);
  arena.free(rest);
  arena.free(most);
  CHECK(arena.allocate(2 * kHalf, &streams[1]) == other && device.synchronizations == 0);
}

TEST(what_others_may_use_is_given_out_when_the_device_was_waited_for) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kLeastSegment);
  constexpr std::size_t kHalf = DeviceArena::kLeastSegment / 2;
  const char streams[2] = {};
  void* const first = arena.allocate(kHalf, &streams[0]);
  void* const second = arena.allocate(kHalf, &streams[0]);
  const auto queue = device.make_queue();
  const auto flag = device.make_flags(1);
  queue->wait_flag(&flag[0], 1);
  arena.free(first);
  // Not for a caller that must not wait for the device.
  CHECK_THROWS(arena.allocate(kHalf, &streams[1], false), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
  CHECK(device.synchronizations == 0);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    flag[0].store(1);
  });
  CHECK(arena.allocate(kHalf, &streams[1]) == first && flag[0].load() == 1 && device.synchronizations == 1);
  host.join();
  // Memory that several streams have used is not reused without waiting, even for its own stream.
  arena.share_with_streams(second);
  arena.share_with_streams(&device);
  arena.free(second);
  CHECK_THROWS(arena.allocate(kHalf, &streams[0], false), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
  CHECK(arena.allocate(kHalf, &streams[0]) == second && device.synchronizations == 2);
  // Memory freed during the wait is not covered by it.
  arena.free(first);
  device.meanwhile = [&] { arena.free(second); };
  CHECK(arena.allocate(kHalf) == first && device.synchronizations == 3);
  device.meanwhile = nullptr;
  CHECK_THROWS(arena.allocate(kHalf, nullptr, false), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
  CHECK(arena.allocate(kHalf) == second && device.synchronizations == 4);
}

TEST(what_several_streams_have_used_makes_it_not_grow) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kNoLimit);
  for (int turn = 0; turn < 5; ++turn) {
    void* const memory = arena.allocate(DeviceArena::kLeastSegment);
    arena.share_with_streams(memory);
    arena.free(memory);
  }
  CHECK(arena.segments() == 1 && device.synchronizations == 4);
}

TEST(a_device_that_fails_gives_nothing_back) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kNoLimit);
  void* const memory = arena.allocate(DeviceArena::kLeastSegment);
  arena.share_with_streams(memory);
  arena.free(memory);
  device.broken = true;
  CHECK_THROWS(arena.allocate(1000), Error, "is broken");
  device.broken = false;
  CHECK(arena.allocate(1000) == memory && arena.segments() == 1);
}

TEST(the_limit_holds) {
  CountingDevice device;
  DeviceArena none(device, 0);
  CHECK_THROWS(none.allocate(1), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY=0");
  DeviceArena arena(device, 100 * kMiB);
  void* const first = arena.allocate(50 * kMiB);
  CHECK(arena.reserved() == 64 * kMiB);
  void* const second = arena.allocate(30 * kMiB);
  CHECK(arena.reserved() == 100 * kMiB && arena.in_use() == 80 * kMiB);
  CHECK_THROWS(arena.allocate(20 * kMiB), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY allows 104857600");
  CHECK_THROWS(arena.allocate(~std::size_t{0}), NoMemory, "group memory");
  arena.free(second);
  CHECK(arena.allocate(36 * kMiB) == second);
  arena.free(first);
}

TEST(a_device_without_memory_is_asked_for_less) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kNoLimit);
  device.most = 5 * kMiB;
  CHECK(arena.allocate(3 * kMiB) && arena.reserved() == 4 * kMiB);
  CHECK_THROWS(arena.allocate(5 * kMiB), NoMemory, "6291456 bytes");
  CHECK(arena.segments() == 1 && arena.allocate(kMiB) && arena.segments() == 1);
}

TEST(segments_grow_with_what_there_is) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kNoLimit);
  for (int i = 0; i < 600; ++i) arena.allocate(40 * kMiB);  // their memory is never touched
  CHECK(arena.segments() < 48 && arena.reserved() >= 600 * 40 * kMiB);
  for (int i = 1; i < arena.segments(); ++i) {
    const DeviceArena::Segment& segment = arena.segment(i);
    CHECK(segment.bytes >= arena.segment(i - 1).bytes);
    const auto end = arena.find(segment.base + segment.bytes - 8, 8);
    CHECK(end && end->segment == i && end->offset == segment.bytes - 8);
    CHECK(!arena.find(segment.base + segment.bytes - 8, 9));
  }
  CHECK(!arena.find(&device, 1));
}

TEST(the_arena_of_a_device_is_found) {
  CountingDevice device, other;
  DeviceArena& arena = DeviceArena::of(device);
  CHECK(&DeviceArena::of(device) == &arena && &DeviceArena::of(other) != &arena);
  auto* memory = static_cast<std::byte*>(arena.allocate(1000));
  CHECK(DeviceArena::find(memory + 999) == &arena && !DeviceArena::find(&arena));
}

TEST(threads_share_it) {
  CountingDevice device;
  DeviceArena arena(device, DeviceArena::kLeastSegment);
  const char streams[3] = {};
  unit::on_threads(4, [&](int t) {
    for (int turn = 0; turn < 300; ++turn) {
      auto* memory =
          static_cast<int*>(arena.allocate(5 * kMiB + static_cast<unsigned>(turn), &streams[turn % 3]));
      *memory = t;
      std::this_thread::yield();
      CHECK(*memory == t && arena.find(memory, 5 * kMiB));
      if (turn % 7 == 0) arena.share_with_streams(memory);
      arena.free(memory);
    }
  });
  CHECK(arena.in_use() == 0 && device.synchronizations > 0 && arena.reserved() == DeviceArena::kLeastSegment);
}

UNIT_MAIN()
