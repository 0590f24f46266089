#include "common/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/error.hpp"

#ifndef F_SEAL_FUTURE_WRITE  // Linux 5.1
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace mpi_gdr {
namespace {

constexpr int kSharing = MAP_SHARED | MAP_NORESERVE;
constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, of Linux 6.3
constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;

// Returns MAP_FAILED and sets errno on failure. Not in core dumps, which would allocate every unused page.
void* map(int file, std::size_t bytes, int access) {
  void* const memory = ::mmap(nullptr, bytes, access, kSharing, file, 0);
  if (memory != MAP_FAILED) ::madvise(memory, bytes, MADV_DONTDUMP);
  return memory;
}

}  // namespace

MemoryFile make_memory_file(std::size_t bytes, Writers writers) {
  MemoryFile made;
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  made.file = ::memfd_create("mpi-gdr", kFlags | kNoExecSeal);
  if (made.file < 0 && errno == EINVAL) made.file = ::memfd_create("mpi-gdr", kFlags);
  if (made.file < 0) fail(ErrorCode::System, "memfd_create: ", std::strerror(errno));
  const bool shared = writers == Writers::All;
  if (::ftruncate(made.file, static_cast<off_t>(bytes)) == 0 && ::fchmod(made.file, 0600) == 0 &&
      ::fcntl(made.file, F_ADD_SEALS, shared ? kFixedSize | F_SEAL_SEAL : kFixedSize) == 0 &&
      (made.memory = map(made.file, bytes, PROT_READ | PROT_WRITE)) != MAP_FAILED) {
    if (!shared) ::fcntl(made.file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    return made;
  }
  const int error = errno;
  ::close(made.file);
  fail(ErrorCode::System, "shared memory of ", bytes, " bytes: ", std::strerror(error));
}

void release(MemoryFile file, std::size_t bytes) {
  ::munmap(file.memory, bytes);
  if (file.file >= 0) ::close(file.file);
}

void make_private(MemoryFile file, std::size_t bytes) noexcept {
  constexpr int kInPlace = MAP_FIXED | MAP_NORESERVE;
  if (::mmap(file.memory, bytes, PROT_READ | PROT_WRITE, kInPlace | MAP_PRIVATE, file.file, 0) == MAP_FAILED)
    ::mmap(file.memory, bytes, PROT_READ, kInPlace | MAP_SHARED, file.file, 0);
  ::madvise(file.memory, bytes, MADV_DONTDUMP);
}

void* map_file_of(std::int64_t pid, int file, std::size_t bytes, Writers writers) {
  const bool reads = writers == Writers::Owner;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
  const int opened = ::open(path.c_str(), (reads ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (opened < 0) return nullptr;
  struct stat status{};
  const int seals = ::fcntl(opened, F_GET_SEALS);  // -1: it cannot be sealed
  const bool fits = ::fstat(opened, &status) == 0 && status.st_uid == ::geteuid() &&
                    static_cast<std::size_t>(status.st_size) == bytes && seals != -1 &&
                    (seals & kFixedSize) == kFixedSize;
  void* memory = fits ? map(opened, bytes, reads ? PROT_READ : PROT_READ | PROT_WRITE) : MAP_FAILED;
  ::close(opened);
  return memory == MAP_FAILED ? nullptr : memory;
}

std::uint64_t draw_nonce() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    fail(ErrorCode::System, "getrandom: ", std::strerror(errno));
  return bits;
}

}  // namespace mpi_gdr
