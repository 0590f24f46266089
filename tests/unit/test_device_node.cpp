// How the ranks of a node find each other's group memory on their devices.
#include "counting_device.hpp"
#include "node_areas.hpp"
#include "test.hpp"
#include "transport/ipc/device_node.hpp"

using namespace mpi_gdr;
using ipc::DeviceArena;
using ipc::DeviceNode;

namespace {

// The nodes of a group, as c10d/backend_device.cpp makes them, and their devices.
struct Ranks {
  explicit Ranks(int size) : devices(static_cast<std::size_t>(size)) {
    for (auto& device : devices) device = std::make_unique<CountingDevice>();
  }
  ~Ranks() { leave(); }
  void meet(const std::vector<int>& members = {}) {
    std::string why;
    if (try_to_meet(members, why) != static_cast<int>(devices.size())) fail(ErrorCode::Internal, why);
  }
  // The number of ranks that have mapped everything.
  int try_to_meet(const std::vector<int>& members, std::string& why) {
    const int size = static_cast<int>(devices.size());
    const std::vector<ipc::Areas> areas = unit::make_areas(size);
    for (int r = 0; r < size; ++r)
      nodes.push_back(std::make_unique<DeviceNode>(*devices[r], r, areas[r], members));
    for (auto& node : nodes) node->publish();
    int attached = 0;
    for (auto& node : nodes) attached += node->attach(why);
    return attached;
  }
  void refresh() {  // twice, so that ranks map what the first turn has published
    for (int turn = 0; turn < 2; ++turn, ++use)
      for (auto& node : nodes) node->group_memory().refresh(use);
  }
  std::optional<DeviceArena::Location> place(int r, const void* memory) const {
    return nodes[r]->group_memory().find(memory, use);
  }
  void leave() {  // each waits for the others
    unit::on_threads(static_cast<int>(nodes.size()), [&](int r) { nodes[r].reset(); });
    nodes.clear();
  }
  DeviceArena& arena(int r) { return DeviceArena::of(*devices[r]); }
  // Where rank `reader` has mapped a location of rank `owner`; null: not mapped.
  std::byte* seen(int reader, int owner, const DeviceArena::Location& place) {
    const std::uint64_t base = nodes[reader]->group_memory().own().bases[owner][place.segment];
    return base ? reinterpret_cast<std::byte*>(base) + place.offset : nullptr;
  }
  std::vector<std::unique_ptr<CountingDevice>> devices;
  std::vector<std::unique_ptr<DeviceNode>> nodes;
  std::uint64_t use = 0;  // the next use of the slots
};

}  // namespace

TEST(ranks_find_what_there_is_and_what_comes_later) {
  for (int size = 2; size <= 4; ++size) {
    Ranks ranks(size);
    std::vector<std::byte*> blocks;
    for (int r = 0; r < size; ++r) blocks.push_back(static_cast<std::byte*>(ranks.arena(r).allocate(kMiB)));
    const auto expect_all_to_see = [&](int segment) {
      for (int owner = 0; owner < size; ++owner) {
        std::byte* const block = blocks[owner];
        CHECK(ranks.place(owner, block + 100));
        const DeviceArena::Location place = *ranks.place(owner, block + 100);
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
    expect_all_to_see(0);  // before any refresh
    int other = 0;
    const DeviceArena::Segment& segment = ranks.arena(0).segment(0);
    CHECK(!ranks.place(0, &other) && !ranks.place(0, segment.base + segment.bytes + 1));
    CHECK(ranks.place(0, segment.base) && ranks.place(0, segment.base)->offset == 0);
    // A block in a new segment has a location only once all ranks have mapped it,
    for (int r = 0; r < size; ++r)
      blocks[r] = static_cast<std::byte*>(ranks.arena(r).allocate(DeviceArena::kLeastSegment));
    for (int r = 0; r < size; ++r) {
      CHECK(!ranks.place(r, blocks[r]));
      ranks.nodes[r]->group_memory().refresh(ranks.use + 3);
      CHECK(!ranks.place(0, blocks[0]));
    }
    // and only from the use in which the last rank has mapped it.
    const std::uint64_t early = ranks.use;
    ranks.use = early + 2;
    CHECK(!ranks.place(0, blocks[0]));
    ranks.use = early + 3;
    CHECK(ranks.place(0, blocks[0]));
    ranks.refresh();
    expect_all_to_see(1);
    for (const bool written : {false, true})
      for (int owner = 0; owner < size; ++owner)
        for (int slot = 0; slot < ipc::kSlots; ++slot)
          for (int kind = 0; kind < 2; ++kind) {
            const auto value = static_cast<unsigned>(100 * owner + 10 * slot + kind + 1);
            ipc::DeviceSegments& segments = ranks.nodes[written ? 0 : owner]->group_memory();
            if (!written) segments.own().shown[slot][kind].value.store(value);
            if (written) CHECK(segments.part(owner).shown[slot][kind].value.load() == value);
          }
    expect_all_to_see(1);
    // Leaving unmaps everything but keeps the memory, which the next group of the devices finds.
    for (auto& device : ranks.devices) CHECK(device->mapped == 3 * (size - 1));
    ranks.leave();
    for (auto& device : ranks.devices) CHECK(device->mapped == 0);
    blocks[0][0] = std::byte{1};
    ranks.meet();
    expect_all_to_see(1);
  }
}

TEST(memory_that_a_rank_cannot_map_is_not_shared) {
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

TEST(staging_memory_is_freed_when_no_rank_has_it_mapped) {
  for (const bool agreed : {false, true}) {
    Ranks ranks(3);
    ranks.devices[1]->imports = false;
    std::string why;
    CHECK(ranks.try_to_meet({}, why) == 2 &&
          why.starts_with("rank 0: out of reach; each rank must see all GPUs"));
    CHECK(ranks.devices[0]->mapped == 2 && ranks.devices[2]->mapped == 2);
    const auto began = std::chrono::steady_clock::now();
    if (agreed) {
      for (auto& node : ranks.nodes) CHECK(node->detach());
      for (auto& device : ranks.devices) CHECK(device->mapped == 0);
      for (auto& node : ranks.nodes) node->reclaim();
    }
    ranks.nodes[1].reset();
    CHECK(ranks.devices[1]->releases == agreed);
    ranks.leave();
    for (auto& device : ranks.devices) CHECK(device->mapped == 0 && device->releases == agreed);
    // Nodes do not wait for ranks that never map their memory.
    if (agreed) CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(1));
  }
}

TEST(a_node_that_cannot_be_made_leaves_nothing) {
  CountingDevice device;
  device.queues = false;
  CHECK_THROWS(DeviceNode(device, 0, unit::make_areas(2)[0]), Error, "no queues here");
  CHECK(device.allocations == 1 && device.releases == 1);
  device.queues = true;
  {
    DeviceNode unshared(device, 0, unit::make_areas(2)[0]);
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
  CHECK_CONTAINS(text, "group memory of rank 7");
}

TEST(ranks_grow_while_others_look) {
  constexpr int kSize = 3, kTurns = 12;
  Ranks ranks(kSize);
  ranks.meet();
  std::barrier turn(kSize);
  std::atomic<int> ready{0};
  std::vector<DeviceArena::Location> places(kSize);
  unit::on_threads(kSize, [&](int r) {
    DeviceNode& node = *ranks.nodes[r];
    for (int i = 0; i < kTurns; ++i) {
      auto* const block = static_cast<std::byte*>(ranks.arena(r).allocate(DeviceArena::kLeastSegment));
      block[5] = static_cast<std::byte>(17 * i + r);
      std::optional<DeviceArena::Location> place;
      while (!(place = node.group_memory().find(block + 5, 0))) node.group_memory().refresh(0);
      places[r] = *place;
      ready.fetch_add(1);
      // The others wait for this one to map theirs.
      while (ready.load() < kSize * (i + 1)) node.group_memory().refresh(0);
      for (int owner = 0; owner < kSize; ++owner)
        CHECK(*ranks.seen(r, owner, places[owner]) == static_cast<std::byte>(17 * i + owner));
      turn.arrive_and_wait();
    }
  });
}

UNIT_MAIN()
