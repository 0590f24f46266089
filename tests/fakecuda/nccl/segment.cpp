#include "nccl/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fakenccl {
namespace {

// The contents of a UniqueId. The inode distinguishes the file from a later one with the same descriptor.
struct Id {
  int pid, file;
  std::uint64_t inode;
};

std::uint64_t inode_of(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? status.st_ino : 0;
}

constexpr std::size_t kPage = 4096;

}  // namespace

void fault(const char* rule) {
  std::fprintf(stderr, "fakenccl: %s\n", rule);
  std::abort();
}

std::optional<UniqueId> Segment::make_id() {
  const int file = ::memfd_create("fakenccl", MFD_CLOEXEC);
  if (file < 0) return std::nullopt;
  const Id made{::getpid(), file, inode_of(file)};
  UniqueId id{};
  std::memcpy(&id, &made, sizeof made);
  return id;
}

std::unique_ptr<Segment> Segment::open(const UniqueId& id, int ranks) {
  Id made;
  std::memcpy(&made, &id, sizeof made);
  const std::string path = "/proc/" + std::to_string(made.pid) + "/fd/" + std::to_string(made.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  std::unique_ptr<Segment> segment;
  if (inode_of(file) == made.inode) {
    segment.reset(new Segment(made.pid == ::getpid() ? made.file : -1, ranks));
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t cells = n * sizeof(RankCell) + n * n * sizeof(Channel);
    const std::size_t before_slots = (cells + kPage - 1) / kPage * kPage;
    segment->bytes_ = before_slots + (n + n * n) * kSlotBytes;
    void* memory = MAP_FAILED;
    if (::ftruncate(file, static_cast<off_t>(segment->bytes_)) == 0)
      memory = ::mmap(nullptr, segment->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fault("no memory for a communicator");
    segment->memory_ = static_cast<std::byte*>(memory);
    segment->slots_ = segment->memory_ + before_slots;
  }
  ::close(file);
  return segment;
}

Segment::~Segment() {
  close_file();
  if (memory_) ::munmap(memory_, bytes_);
}

void Segment::close_file() {
  if (file_ >= 0 && memory_ && !rank(0).file_closed.exchange(true)) ::close(file_);
  file_ = -1;
}

}  // namespace fakenccl
