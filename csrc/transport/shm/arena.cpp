#include "transport/shm/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

#include "common/error.hpp"
#include "common/log.hpp"
#include "transport/shm/memory_file.hpp"

namespace mpigdr::shm {
namespace {

constexpr std::size_t kPage = 64 * 1024;  // a multiple of every system's

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The first page of an arena tells whose it is.
struct Header {
  std::uint64_t nonce;
};

}  // namespace

Arena* Arena::own(std::size_t limit) {
  static Arena* const arena = [&]() -> Arena* {
    if (limit == 0) return nullptr;
    try {
      return new Arena(limit);
    } catch (const Error& error) {
      log(LogLevel::Warn, "INIT", "no group memory, tensors are in ordinary memory: ", error.what());
      return nullptr;
    }
  }();
  return arena;
}

Arena::Arena(std::size_t limit) : bytes_(whole_pages(limit) + kPage) {
  nonce_ = draw_nonce();
  const MemoryFile made = make_memory_file(bytes_);
  file_ = made.file;
  memory_ = static_cast<std::byte*>(made.memory);
  reinterpret_cast<Header*>(memory_)->nonce = nonce_;
  free_.emplace(kPage, bytes_ - kPage);
}

Arena::~Arena() { release({file_, memory_}, bytes_); }

void* Arena::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > bytes_) return nullptr;
  const std::size_t size = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  // The lowest place: what was used before is there, and still has its pages.
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= size; });
  if (found == free_.end()) return nullptr;
  const auto [offset, room] = *found;
  free_.erase(found);
  if (room > size) free_.emplace(offset + size, room - size);
  used_.emplace(offset, size);
  in_use_ += size;
  warm_ -= std::min(warm_, size);
  return memory_ + offset;
}

bool Arena::owns(const void* memory) const {
  const auto* at = static_cast<const std::byte*>(memory);
  return at >= memory_ && at < memory_ + bytes_;
}

void Arena::free(void* memory) {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - memory_);
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset);
  MPIGDR_CHECK(used != used_.end());
  std::size_t size = used->second;
  used_.erase(used);
  in_use_ -= size;
  warm_ += size;
  if (warm_ > kWarmBytes && ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        static_cast<off_t>(offset), static_cast<off_t>(size)) == 0)
    warm_ -= size;
  auto next = free_.emplace(offset, size).first;
  if (next != free_.begin())
    if (const auto before = std::prev(next); before->first + before->second == offset) {
      before->second += size;
      free_.erase(next);
      next = before;
    }
  if (const auto after = std::next(next);
      after != free_.end() && next->first + next->second == after->first) {
    next->second += after->second;
    free_.erase(after);
  }
}

std::size_t Arena::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::string Arena::ticket() const {
  char text[128];
  std::snprintf(text, sizeof text, "%lld %d %llx %zx %llx", static_cast<long long>(::getpid()), file_,
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(memory_)), bytes_,
                static_cast<unsigned long long>(nonce_));
  return text;
}

std::shared_ptr<ArenaView> ArenaView::of(const std::string& ticket) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::weak_ptr<ArenaView>>;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known.find(ticket); found != known.end())
    if (auto view = found->second.lock()) return view;
  long long pid;
  int file;
  unsigned long long base, nonce;
  std::size_t bytes;
  if (std::sscanf(ticket.c_str(), "%lld %d %llx %zx %llx", &pid, &file, &base, &bytes, &nonce) != 5 ||
      bytes < kPage)
    return nullptr;
  void* memory = map_file_of(pid, file, bytes);
  if (!memory) return nullptr;
  std::shared_ptr<ArenaView> view(new ArenaView);
  view->memory_ = static_cast<std::byte*>(memory);
  view->base_ = base;
  view->bytes_ = bytes;
  if (static_cast<const Header*>(memory)->nonce != nonce) return nullptr;
  ::madvise(memory, bytes, MADV_DONTDUMP);  // it stands in its owner's core, if anywhere
  known.insert_or_assign(ticket, view);
  return view;
}

ArenaView::~ArenaView() { ::munmap(memory_, bytes_); }

}  // namespace mpigdr::shm
