// Group memory of a device: what is given out, when freed memory is used again, and how the ranks of a node
// find each other's.
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/error.hpp"
#include "device/sim/sim_device.hpp"
#include "test.hpp"
#include "transport/ipc/device_arena.hpp"
#include "transport/ipc/device_node.hpp"

using namespace mpigdr;
using ipc::DeviceArena;
using ipc::DeviceNode;

namespace {

constexpr std::size_t kMiB = 1 << 20;

// Counts what is asked of it, and may have no memory or no handles.
class CountingDevice : public SimDevice {
 public:
  ~CountingDevice() override { DeviceArena::forget(*this); }
  void* allocate(std::size_t bytes) override {
    if (bytes > most) throw NoMemory(bytes, "the test's device");
    ++allocations;
    return SimDevice::allocate(bytes);
  }
  void release(void* memory) override {
    ++releases;
    SimDevice::release(memory);
  }
  std::unique_ptr<DeviceQueue> make_queue() override {
    if (!queues) fail(ErrorCode::System, "no queues here");
    return SimDevice::make_queue();
  }
  void synchronize() override {
    ++synchronizations;
    if (meanwhile) meanwhile();
    if (broken) fail(ErrorCode::System, "the device is broken");
    SimDevice::synchronize();
  }
  std::string export_memory(void* memory) override {
    if (!exports) fail(ErrorCode::System, "no handles here");
    return SimDevice::export_memory(memory);
  }
  void* import_memory(const std::string& ticket) override {
    if (!imports) fail(ErrorCode::System, "out of reach");
    ++mapped;
    return SimDevice::import_memory(ticket);
  }
  void release_imported(void* memory) override {
    --mapped;
    SimDevice::release_imported(memory);
  }
  std::atomic<int> allocations{0}, releases{0}, synchronizations{0}, mapped{0};
  std::atomic<std::size_t> most{~std::size_t{0}};
  std::atomic<bool> broken{false}, exports{true}, imports{true}, queues{true};
  std::function<void()> meanwhile;
};

// Nodes of a group as torch/backend_device.cpp makes them, and their devices.
struct Ranks {
  explicit Ranks(int size) : devices(static_cast<std::size_t>(size)) {
    for (auto& device : devices) device = std::make_unique<CountingDevice>();
  }
  ~Ranks() { leave(); }
  // `members`: as DeviceNode takes them.
  void meet(const std::vector<int>& members = {}) {
    std::string why;
    if (try_to_meet(members, why) != static_cast<int>(devices.size())) fail(ErrorCode::Internal, why);
  }
  // How many of them have mapped everything.
  int try_to_meet(const std::vector<int>& members, std::string& why) {
    const int size = static_cast<int>(devices.size());
    for (int r = 0; r < size; ++r)
      nodes.push_back(std::make_unique<DeviceNode>(*devices[static_cast<std::size_t>(r)], r, size, members));
    std::vector<ipc::Ticket> tickets;
    for (auto& node : nodes) tickets.push_back(node->ticket());
    int attached = 0;
    for (auto& node : nodes) attached += node->attach(tickets, why);
    return attached;
  }
  void refresh() {  // the second time, they map what the first one has published
    for (int turn = 0; turn < 2; ++turn, ++use)
      for (auto& node : nodes) node->refresh(use);
  }
  std::optional<DeviceArena::Place> place(int r, const void* memory) const {
    return nodes[static_cast<std::size_t>(r)]->place(memory, use);
  }
  void leave() {  // each waits for the others
    std::vector<std::thread> threads;
    for (auto& node : nodes) threads.emplace_back([&node] { node.reset(); });
    for (auto& thread : threads) thread.join();
    nodes.clear();
  }
  DeviceArena& arena(int r) { return DeviceArena::of(*devices[static_cast<std::size_t>(r)]); }
  // What rank `reader` sees at a place of rank `owner`.
  std::byte* seen(int reader, int owner, const DeviceArena::Place& place) {
    const std::uint64_t base =
        nodes[static_cast<std::size_t>(reader)]->bases()[owner * DeviceArena::kMaxSegments + place.segment];
    return base ? reinterpret_cast<std::byte*>(base) + place.offset : nullptr;
  }
  std::vector<std::unique_ptr<CountingDevice>> devices;
  std::vector<std::unique_ptr<DeviceNode>> nodes;
  std::uint64_t use = 0;  // the next one of the slots
};

}  // namespace

TEST(blocks_are_apart_and_come_back) {
  CountingDevice device;
  DeviceArena arena(device, 2 * DeviceArena::kLeastSegment);
  std::mt19937 random(1);
  std::vector<std::pair<unsigned char*, std::size_t>> held;
  const auto mark = [](const void* memory) {
    return static_cast<unsigned char>(reinterpret_cast<std::uintptr_t>(memory) >> 9);
  };
  for (int turn = 0; turn < 4000; ++turn) {
    if (!held.empty() && random() % 2) {
      const std::size_t i = random() % held.size();
      auto [memory, bytes] = held[i];
      CHECK(memory[0] == mark(memory) && memory[bytes - 1] == mark(memory));  // nobody else has written there
      arena.free(memory);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const std::size_t bytes = 1 + random() % (2 * kMiB);
    const char streams[3] = {};
    auto* memory = static_cast<unsigned char*>(arena.allocate(bytes, &streams[random() % 3]));
    if (random() % 10 == 0) arena.share_with_streams(memory);
    CHECK(arena.owns(memory) && reinterpret_cast<std::uintptr_t>(memory) % DeviceArena::kAlignment == 0);
    memory[0] = memory[bytes - 1] = mark(memory);
    held.emplace_back(memory, bytes);
  }
  for (auto [memory, bytes] : held) arena.free(memory);
  CHECK(arena.in_use() == 0);
  const int segments = arena.segments();
  CHECK(segments == 2 && segments == device.allocations && device.synchronizations > 0);
  // In one piece again, each segment of its own.
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
  // The device still has work that reads them.
  const auto queue = device.make_queue();
  const auto flag = device.make_flags(1);
  queue->wait_flag(&flag[0], 1);
  arena.free(first);
  CHECK(arena.allocate(kHalf, &streams[0]) == first);
  // Two that were freed are one block, and a smaller one leaves the rest.
  arena.free(second);
  arena.free(first);
  CHECK(arena.allocate(2 * kHalf, &streams[0]) == first && arena.segments() == 1);
  arena.free(first);
  CHECK(arena.allocate(kMiB, &streams[0]) == first && arena.allocate(kMiB, &streams[0]) == first + kMiB);
  // None of that waited for the device. What another stream may still use is for nobody else, while there is
  // room for a segment.
  flag[0].store(1);
  arena.free(first);
  void* const other = arena.allocate(kMiB, &streams[1]);
  CHECK(arena.find_place(other, 1)->segment == 1 && device.synchronizations == 0);
  // What is clean is for all, also in one piece with what was freed.
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
  // Not by a caller for whom the device may wait.
  CHECK_THROWS(arena.allocate(kHalf, &streams[1], false), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
  CHECK(device.synchronizations == 0);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    flag[0].store(1);
  });
  CHECK(arena.allocate(kHalf, &streams[1]) == first && flag[0].load() == 1 && device.synchronizations == 1);
  host.join();
  // What several streams have used is nobody's without that, not even its own stream's.
  arena.share_with_streams(second);
  arena.share_with_streams(&device);
  arena.free(second);
  CHECK_THROWS(arena.allocate(kHalf, &streams[0], false), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
  CHECK(arena.allocate(kHalf, &streams[0]) == second && device.synchronizations == 2);
  // What is freed while the device is waited for is not what was waited for.
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
  for (int i = 0; i < 600; ++i) arena.allocate(40 * kMiB);  // of which nothing is touched
  CHECK(arena.segments() < 48 && arena.reserved() >= 600 * 40 * kMiB);
  for (int i = 1; i < arena.segments(); ++i) {
    const DeviceArena::Segment& segment = arena.segment(i);
    CHECK(segment.bytes >= arena.segment(i - 1).bytes);
    const auto end = arena.find_place(segment.base + segment.bytes - 8, 8);
    CHECK(end && end->segment == i && end->offset == segment.bytes - 8);
    CHECK(!arena.find_place(segment.base + segment.bytes - 8, 9));
  }
  CHECK(!arena.find_place(&device, 1));
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
  std::vector<std::thread> threads;
  const char streams[3] = {};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < 300; ++turn) {
        auto* memory =
            static_cast<int*>(arena.allocate(5 * kMiB + static_cast<unsigned>(turn), &streams[turn % 3]));
        *memory = t;
        std::this_thread::yield();
        CHECK(*memory == t && arena.find_place(memory, 5 * kMiB));
        if (turn % 7 == 0) arena.share_with_streams(memory);
        arena.free(memory);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(arena.in_use() == 0 && device.synchronizations > 0 && arena.reserved() == DeviceArena::kLeastSegment);
}

TEST(ranks_find_what_there_is_and_what_comes_later) {
  for (int size = 2; size <= 4; ++size) {
    Ranks ranks(size);
    std::vector<std::byte*> blocks;
    for (int r = 0; r < size; ++r) blocks.push_back(static_cast<std::byte*>(ranks.arena(r).allocate(kMiB)));
    const auto expect_all_to_see = [&](int segment) {
      for (int owner = 0; owner < size; ++owner) {
        std::byte* const block = blocks[static_cast<std::size_t>(owner)];
        CHECK(ranks.place(owner, block + 100));
        const DeviceArena::Place place = *ranks.place(owner, block + 100);
        CHECK(place.segment == segment);
        CHECK(ranks.seen(owner, owner, place) == block + 100);
        for (int reader = 0; reader < size; ++reader) {
          block[100] = static_cast<std::byte>(10 * owner + reader);
          std::byte* const there = ranks.seen(reader, owner, place);
          CHECK(there && *there == block[100] && (reader == owner) == (there == block + 100));
          there[kMiB - 101] = static_cast<std::byte>(reader);
          CHECK(block[kMiB - 1] == static_cast<std::byte>(reader));
        }
      }
    };
    ranks.meet();
    expect_all_to_see(0);  // before anybody refreshes
    // Memory that is not in the arena has no place.
    int other = 0;
    const DeviceArena::Segment& segment = ranks.arena(0).segment(0);
    CHECK(!ranks.place(0, &other) && !ranks.place(0, segment.base + segment.bytes + 1));
    CHECK(ranks.place(0, segment.base) && ranks.place(0, segment.base)->offset == 0);
    // A block in a new segment has none until everybody knows it.
    for (int r = 0; r < size; ++r)
      blocks[static_cast<std::size_t>(r)] =
          static_cast<std::byte*>(ranks.arena(r).allocate(DeviceArena::kLeastSegment));
    for (int r = 0; r < size; ++r) {
      CHECK(!ranks.place(r, blocks[static_cast<std::size_t>(r)]));
      ranks.nodes[static_cast<std::size_t>(r)]->refresh(ranks.use + 3);
      CHECK(!ranks.place(0, blocks[0]));
    }
    // Nor in a use before that one in which the last of them has found it.
    const std::uint64_t early = ranks.use;
    ranks.use = early + 2;
    CHECK(!ranks.place(0, blocks[0]));
    ranks.use = early + 3;
    CHECK(ranks.place(0, blocks[0]));
    ranks.refresh();
    expect_all_to_see(1);
    // The lines of all slots are apart.
    for (int owner = 0; owner < size; ++owner)
      for (int slot = 0; slot < ipc::kSlots; ++slot)
        for (int kind = 0; kind < 2; ++kind)
          ranks.nodes[static_cast<std::size_t>(owner)]
              ->shown(owner, slot, kind)
              .store(static_cast<unsigned>(100 * owner + 10 * slot + kind + 1));
    for (int owner = 0; owner < size; ++owner)
      for (int slot = 0; slot < ipc::kSlots; ++slot)
        for (int kind = 0; kind < 2; ++kind)
          CHECK(ranks.nodes[0]->shown(owner, slot, kind).load() ==
                static_cast<unsigned>(100 * owner + 10 * slot + kind + 1));
    expect_all_to_see(1);
    // Nothing that was mapped stays so; the memory does.
    for (auto& device : ranks.devices) CHECK(device->mapped == 3 * (size - 1));
    ranks.leave();
    for (auto& device : ranks.devices) CHECK(device->mapped == 0);
    blocks[0][0] = std::byte{1};
    // The next group of the same devices finds all of it.
    ranks.meet();
    expect_all_to_see(1);
  }
}

TEST(memory_that_somebody_cannot_map_has_no_place) {
  Ranks ranks(3);
  ranks.meet();
  ranks.devices[2]->imports = false;
  void* const lost = ranks.arena(0).allocate(DeviceArena::kLeastSegment);
  ranks.refresh();
  ranks.devices[2]->imports = true;
  void* const found = ranks.arena(0).allocate(DeviceArena::kLeastSegment);
  ranks.devices[1]->exports = false;
  void* const without_handle = ranks.arena(1).allocate(DeviceArena::kLeastSegment);
  ranks.devices[1]->exports = true;
  void* const with_handle = ranks.arena(1).allocate(DeviceArena::kLeastSegment);
  ranks.refresh();
  CHECK(!ranks.place(0, lost) && ranks.place(0, found) && ranks.place(0, found)->segment == 1);
  CHECK(!ranks.place(1, without_handle) && ranks.place(1, with_handle));
  CHECK(ranks.seen(1, 0, {0, 0}) && !ranks.seen(2, 0, {0, 0}));
}

TEST(staging_memory_goes_when_nobody_has_it_mapped) {
  for (const bool agreed : {false, true}) {
    Ranks ranks(3);
    ranks.devices[1]->imports = false;
    std::string why;
    CHECK(ranks.try_to_meet({}, why) == 2 && why == "rank 0: out of reach");
    CHECK(ranks.devices[0]->mapped == 2 && ranks.devices[2]->mapped == 2);
    const auto began = std::chrono::steady_clock::now();
    if (agreed) {
      for (auto& node : ranks.nodes) CHECK(node->detach());
      for (auto& device : ranks.devices) CHECK(device->mapped == 0);
      for (auto& node : ranks.nodes) node->take_back();
    }
    ranks.nodes[1].reset();
    CHECK(ranks.devices[1]->releases == agreed);
    ranks.leave();
    for (auto& device : ranks.devices) CHECK(device->mapped == 0 && device->releases == agreed);
    // Nobody waits for those who never come to map it.
    if (agreed) CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(1));
  }
}

TEST(a_node_that_cannot_be_made_leaves_nothing) {
  CountingDevice device;
  device.queues = false;
  CHECK_THROWS(DeviceNode(device, 0, 2), Error, "no queues here");
  CHECK(device.allocations == 1 && device.releases == 1);
  device.queues = true;
  {
    DeviceNode unshared(device, 0, 2);
  }
  CHECK(device.releases == 2);
}

TEST(a_rank_whose_memory_cannot_be_mapped_is_named_as_in_its_group) {
  Ranks ranks(2);
  ranks.meet({4, 7});
  ranks.devices[0]->imports = false;
  ranks.arena(1).allocate(kMiB);
  std::FILE* const log = std::tmpfile();
  const int before = ::dup(2);
  ::dup2(::fileno(log), 2);
  ranks.refresh();
  ::dup2(before, 2);
  ::close(before);
  std::string text(4096, '\0');
  std::rewind(log);
  text.resize(std::fread(text.data(), 1, text.size(), log));
  std::fclose(log);
  CHECK(text.find("group memory of rank 7") != std::string::npos);
}

TEST(ranks_grow_while_others_look) {
  constexpr int kSize = 3, kTurns = 12;
  Ranks ranks(kSize);
  ranks.meet();
  std::barrier turn(kSize);
  std::atomic<int> ready{0};
  std::vector<DeviceArena::Place> places(kSize);
  std::vector<std::thread> threads;
  for (int r = 0; r < kSize; ++r)
    threads.emplace_back([&, r] {
      DeviceNode& node = *ranks.nodes[static_cast<std::size_t>(r)];
      for (int i = 0; i < kTurns; ++i) {
        auto* const block = static_cast<std::byte*>(ranks.arena(r).allocate(DeviceArena::kLeastSegment));
        block[5] = static_cast<std::byte>(17 * i + r);
        std::optional<DeviceArena::Place> place;
        while (!(place = node.place(block + 5, 0))) node.refresh(0);
        places[static_cast<std::size_t>(r)] = *place;
        ready.fetch_add(1);
        while (ready.load() < kSize * (i + 1)) node.refresh(0);  // the others wait for this one to map theirs
        for (int owner = 0; owner < kSize; ++owner)
          CHECK(*ranks.seen(r, owner, places[static_cast<std::size_t>(owner)]) ==
                static_cast<std::byte>(17 * i + owner));
        turn.arrive_and_wait();
      }
    });
  for (auto& thread : threads) thread.join();
}

UNIT_MAIN()
