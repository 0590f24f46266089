// Group memory: allocation, and access from other processes.
#include "random_blocks.hpp"
#include "transport/shm/arena.hpp"

using namespace mpi_gdr;
using shm::Arena;
using shm::ArenaView;

namespace {

constexpr std::size_t kMiB = 1 << 20;

std::size_t resident_shared() {  // bytes of this process
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssShmem:", 0) == 0) return std::stoul(line.substr(9)) * 1024;
  return 0;
}

}  // namespace

TEST(blocks_are_apart_and_come_back) {
  Arena arena(64 * kMiB);
  unit::use_random_blocks(arena, 4096, 2 * kMiB,
                          [&](std::size_t bytes, unsigned) { return arena.allocate(bytes); });
  void* all = arena.allocate(64 * kMiB);
  CHECK(all != nullptr);
  arena.free(all);
}

TEST(the_limit_holds) {
  Arena arena(4 * kMiB);
  void* most = arena.allocate(3 * kMiB);
  CHECK(most && !arena.allocate(2 * kMiB) && !arena.allocate(~std::size_t{0}) && !arena.allocate(0));
  void* rest = arena.allocate(kMiB);
  CHECK(rest && arena.in_use() == 4 * kMiB);
  arena.free(most);
  arena.free(rest);
  int other = 0;
  CHECK(!arena.owns(&other));
  CHECK_THROWS(arena.free(static_cast<char*>(most) + 1), Error, "is false");
}

TEST(freed_memory_goes_back_to_the_system) {
  const std::size_t before = resident_shared();
  Arena arena(2048 * kMiB);
  const std::size_t bytes = Arena::kWarmBytes + 64 * kMiB;
  for (int turn = 0; turn < 3; ++turn) {
    void* memory = arena.allocate(bytes);
    std::memset(memory, 1, bytes);
    CHECK(resident_shared() >= before + bytes);
    arena.free(memory);
    CHECK(resident_shared() <= before + Arena::kWarmBytes + kMiB);
  }
}

TEST(threads_share_it) {
  Arena arena(256 * kMiB);
  unit::on_threads(4, [&](int t) {
    for (int turn = 0; turn < 500; ++turn) {
      auto* memory = static_cast<int*>(arena.allocate(100000 + static_cast<unsigned>(turn)));
      CHECK(memory != nullptr);
      *memory = t;
      std::this_thread::yield();
      CHECK(*memory == t);
      arena.free(memory);
    }
  });
  CHECK(arena.in_use() == 0);
}

TEST(another_process_sees_it) {
  Arena arena(16 * kMiB);
  auto* number = static_cast<std::uint64_t*>(arena.allocate(kMiB));
  *number = 17;
  const std::string ticket = arena.ticket();
  CHECK(unit::in_child([&] {
    const auto view = ArenaView::of(ticket);
    const auto address = reinterpret_cast<std::uintptr_t>(number);
    auto* seen = view ? reinterpret_cast<std::uint64_t*>(view->at(address, 8)) : nullptr;
    const bool right = seen && seen != number && *seen == 17 && ArenaView::of(ticket) == view &&
                       !view->at(address, 32 * kMiB) && !view->at(16, 8) && !view->at(~std::uint64_t{7}, 8);
    if (seen) *seen = 18;
    return right;
  }));
  CHECK(*number == 18);
  for (const std::string& bad : {std::string("nonsense"), std::string(), ticket + "0", "1 " + ticket})
    CHECK(ArenaView::of(bad) == nullptr);
  arena.free(number);
}

// The child has a copy of the free-block maps but shares the pages: it must change neither.
TEST(a_forked_child_leaves_its_parents_memory_alone) {
  Arena& arena = *Arena::own(1024 * kMiB);
  CHECK(Arena::own(1) == &arena);
  const std::size_t bytes = Arena::kWarmBytes + kMiB;
  auto* block = static_cast<char*>(arena.allocate(bytes));
  std::memset(block, 1, bytes);
  CHECK(Arena::find(block + bytes - 1) == &arena && !Arena::find(&arena));
  CHECK(unit::in_child([&] {
    bool right = Arena::find(block) == &arena && !arena.allocate(kMiB);
    arena.free(block);
    Arena* own = Arena::own(16 * kMiB);  // as a child that becomes a rank does
    right = right && own && own != &arena && own->ticket() != arena.ticket();
    auto* mine = right ? static_cast<char*>(own->allocate(kMiB)) : nullptr;
    right = mine && Arena::find(mine) == own && Arena::find(block) == &arena;
    if (right) {
      std::memset(mine, 2, kMiB);
      own->free(mine);
    }
    return right;
  }));
  for (std::size_t i = 0; i < bytes; i += 4096) CHECK(block[i] == 1);
  arena.free(block);
}

TEST(what_a_forked_child_writes_stays_there) {
  Arena& arena = *Arena::own(1024 * kMiB);
  auto* const block = static_cast<volatile char*>(arena.allocate(kMiB));
  volatile char &one = block[0], &other = block[kMiB / 2];  // on two pages
  one = 1;
  other = 1;
  int written[2], go[2];
  CHECK(pipe(written) == 0 && pipe(go) == 0);
  const pid_t child = fork();
  if (child == 0) {
    bool right = one == 1 && other == 1;
    one = 2;
    char byte = 0;
    right = right && write(written[1], "", 1) == 1 && read(go[0], &byte, 1) == 1;
    right = right && one == 2 && other == 3;  // its own copy, and the parent's page
    right = right && unit::in_child([&] { return std::exchange(one, 4) == 2; }) && one == 2;
    _exit(right ? 0 : 1);
  }
  char byte = 0;
  CHECK(read(written[0], &byte, 1) == 1);
  CHECK(one == 1);
  one = 3;
  other = 3;
  CHECK(write(go[1], "", 1) == 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(one == 3 && other == 3);
  for (const int end : {written[0], written[1], go[0], go[1]}) close(end);
  arena.free(const_cast<char*>(block));
}

UNIT_MAIN()
