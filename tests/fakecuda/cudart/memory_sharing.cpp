// Device memory in other processes: they open its file through /proc and lock the file while it is mapped, at
// most until they exit. The owner checks the lock before it frees the memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

std::uint64_t inode_of(int file) {
  struct stat status{};
  return ::fstat(file, &status) == 0 ? status.st_ino : 0;
}

// -1: it has been freed.
int open_and_hold(const IpcHandle& handle) {
  const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  struct flock all{};
  all.l_type = F_RDLCK;
  if (inode_of(file) == handle.inode && ::fcntl(file, F_OFD_SETLK, &all) == 0) return file;
  ::close(file);
  return -1;
}

}  // namespace

IpcHandle Memory::share(void* memory) {
  const std::lock_guard lock(mutex_);
  const Range& range = expect(memory, Range::Kind::Device, "IPC handle of what is no device memory")->second;
  return {inode_of(range.file), range.bytes, static_cast<std::int32_t>(::getpid()), range.file, range.device};
}

std::byte* Memory::map(int file, std::size_t bytes) {
  std::byte* const memory = reserve(bytes);
  const bool mapped =
      memory && ::mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  return mapped ? memory : nullptr;
}

void* Memory::open(const IpcHandle& handle, int device) {
  if (handle.pid == ::getpid() && (!kOneProcess || handle.device == device))
    fault("IPC handle opened in its own process");
  const std::lock_guard lock(mutex_);
  for (auto& [begin, range] : ranges_)
    if (range.kind == Range::Kind::Imported && range.inode == handle.inode && range.device == device) {
      ++range.opened;
      return range.begin;
    }
  const int file = open_and_hold(handle);
  if (file < 0) return nullptr;
  std::byte* const memory = map(file, handle.bytes);
  if (!memory) {
    ::close(file);
    return nullptr;
  }
  std::byte* copied = nullptr;
  if (const auto other = Settings::get().other_bytes) {
    ::mmap(memory, handle.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    copied = other == 2 ? map(file, handle.bytes) : nullptr;
    if (copied) ranges_.emplace(copied, Range{copied, handle.bytes, Range::Kind::Seen, device});
  }
  ranges_.emplace(memory, Range{.begin = memory,
                                .bytes = handle.bytes,
                                .kind = Range::Kind::Imported,
                                .device = device,
                                .file = file,
                                .inode = handle.inode,
                                .copied = copied});
  return memory;
}

void Memory::close(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto range = expect(memory, Range::Kind::Imported, "closing what was never opened");
  if (--range->second.opened == 0) withdraw(range);
}

}  // namespace fakecuda
