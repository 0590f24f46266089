// Memory that other processes map: its size is final, other files are refused, and core dumps exclude it.
#include <fcntl.h>
#include <sys/mman.h>

#include "common/memory_file.hpp"
#include "test.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/node_memory.hpp"

using namespace mpi_gdr;

namespace {

constexpr std::size_t kBytes = 1 << 20;

// Mappings of our files: all, and those excluded from core dumps.
struct Mappings {
  int all = 0, undumped = 0;
};
Mappings mappings() {
  Mappings found;
  std::ifstream smaps("/proc/self/smaps");
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find(":mpi-gdr") != std::string::npos) ours = true, ++found.all;
    if (line.rfind("VmFlags:", 0) != 0) continue;
    if (ours && line.find(" dd ") != std::string::npos) ++found.undumped;
    ours = false;
  }
  return found;
}

}  // namespace

TEST(the_size_is_final) {
  const MemoryFile made = make_memory_file(kBytes);
  CHECK(ftruncate(made.file, kBytes / 2) != 0 && ftruncate(made.file, 2 * kBytes) != 0);
  CHECK(fcntl(made.file, F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(lseek(made.file, 0, SEEK_END) == static_cast<off_t>(kBytes));
  void* const mapped = map_file_of(getpid(), made.file, kBytes);
  CHECK(mapped != nullptr && map_file_of(getpid(), made.file, kBytes / 2) == nullptr);
  munmap(mapped, kBytes);
  release(made, kBytes);
}

TEST(a_file_whose_size_may_change_is_not_mapped) {
  const int unsealed = memfd_create("mpi-gdr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(ftruncate(unsealed, kBytes) == 0 && map_file_of(getpid(), unsealed, kBytes) == nullptr);
  CHECK(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK(map_file_of(getpid(), unsealed, kBytes) == nullptr);
  CHECK(fcntl(unsealed, F_ADD_SEALS, F_SEAL_GROW) == 0);
  void* const sealed = map_file_of(getpid(), unsealed, kBytes);
  CHECK(sealed != nullptr);
  munmap(sealed, kBytes);
  close(unsealed);
  FILE* const ordinary = std::tmpfile();  // has no seals
  CHECK(ordinary && ftruncate(fileno(ordinary), kBytes) == 0);
  CHECK(map_file_of(getpid(), fileno(ordinary), kBytes) == nullptr);
  std::fclose(ordinary);
}

TEST(core_dumps_leave_it_out) {
  const Mappings before = mappings();
  CHECK(before.undumped == before.all);
  const shm::Arena arena(kBytes);
  const shm::Segment segment(&arena, 4096);
  const auto view = shm::ArenaView::of(arena.ticket());
  CHECK(view != nullptr);
  const Mappings now = mappings();
  CHECK(now.all >= before.all + 3 && now.undumped == now.all);
}

UNIT_MAIN()
