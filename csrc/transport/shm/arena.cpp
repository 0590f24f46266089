#include "transport/shm/arena.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <utility>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/record.hpp"

namespace mpi_gdr::shm {
namespace {

constexpr std::size_t kGrain = 64 * 1024;  // a multiple of the page of every system

std::size_t whole_pages(std::size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

// Identifies an arena, in its first page.
struct Header {
  std::uint64_t nonce;
};

// This process's arena and inherited ones. constinit: a child forked during a constructor would wait forever.
constinit struct {
  std::mutex making;
  bool forks_watched = false;     // with `making`
  std::atomic<pid_t> process{0};  // that has made `own`, or failed to
  std::atomic<Arena*> own{nullptr};
  std::array<std::atomic<Arena*>, 8> all{};  // nested forks make one each
} known;

// Called in a forked child. Replaces the lock, which a thread of the parent may have held.
void leave_parents() {
  std::construct_at(&known.making);
  for (const auto& arena : known.all)
    if (Arena* const inherited = arena.load(std::memory_order_relaxed)) inherited->leave_parent();
}

}  // namespace

Arena* Arena::own(std::size_t limit) {
  if (known.process.load(std::memory_order_acquire) == ::getpid())
    return known.own.load(std::memory_order_relaxed);
  const std::lock_guard lock(known.making);
  if (known.process.load(std::memory_order_relaxed) == ::getpid())
    return known.own.load(std::memory_order_relaxed);
  if (!std::exchange(known.forks_watched, true)) ::pthread_atfork(nullptr, nullptr, leave_parents);
  Arena* made = nullptr;
  const auto place =
      std::find_if(known.all.begin(), known.all.end(), [](const auto& a) { return !a.load(); });
  if (limit > 0 && place != known.all.end()) {
    try {
      made = new Arena(limit);
      place->store(made, std::memory_order_release);
    } catch (const Error& error) {
      log(LogLevel::Warn, "INIT", "no group memory, tensors are in ordinary memory: ", error.what());
    }
  }
  known.own.store(made, std::memory_order_relaxed);
  known.process.store(::getpid(), std::memory_order_release);
  return made;
}

Arena* Arena::find(const void* memory) {
  for (const auto& arena : known.all)
    if (Arena* const one = arena.load(std::memory_order_acquire); one && one->owns(memory)) return one;
  return nullptr;
}

Arena::Arena(std::size_t limit)
    : bytes_(whole_pages(limit) + kGrain), owner_(::getpid()), file_(make_memory_file(bytes_)) {
  reinterpret_cast<Header*>(memory_)->nonce = nonce_;
  free_.emplace(kGrain, Free{bytes_ - kGrain, 0});
}

void* Arena::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > bytes_ || ::getpid() != owner_) return nullptr;
  const std::size_t size = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  // The lowest free block: memory used before still has its pages.
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second.bytes >= size; });
  if (found == free_.end()) return nullptr;
  const std::size_t offset = found->first;
  const auto [room, warm] = found->second;
  used_.emplace(offset, Free{size, 0});  // first: memory may run out
  auto node = free_.extract(found);
  // It is unknown which pages of the block are resident: possibly all are in the rest.
  const Free rest{room - size, std::min(room - size, warm)};
  warm_ = warm_ - warm + rest.warm;
  if (rest.bytes > 0) {
    node.key() = offset + size;
    node.mapped() = rest;
    free_.insert(std::move(node));
  }
  in_use_ += size;
  return memory_ + offset;
}

bool Arena::owns(const void* memory) const {
  const auto* at = static_cast<const std::byte*>(memory);
  return at >= memory_ && at < memory_ + bytes_;
}

void Arena::free(void* memory) {
  if (::getpid() != owner_) return;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - memory_);
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset);
  MPI_GDR_CHECK(used != used_.end());
  used->second.warm = used->second.bytes;
  in_use_ -= used->second.bytes;
  warm_ += used->second.bytes;
  auto block = free_.insert(used_.extract(used)).position;
  const auto merge_with_next = [&](Blocks::iterator first) {
    const auto next = std::next(first);
    if (next == free_.end() || first->first + first->second.bytes != next->first) return;
    first->second.bytes += next->second.bytes;
    first->second.warm += next->second.warm;
    free_.erase(next);
  };
  merge_with_next(block);
  if (block != free_.begin()) {
    const auto before = std::prev(block);
    const std::size_t end = before->first + before->second.bytes;
    merge_with_next(before);
    if (end == offset) block = before;
  }
  if (warm_ > kWarmBytes) punch(block);
}

// Returns the block's pages to the system.
void Arena::punch(Blocks::iterator block) {
  if (::fallocate(file_.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block->first),
                  static_cast<off_t>(block->second.bytes)) != 0)
    return;
  warm_ -= block->second.warm;
  block->second.warm = 0;
}

void Arena::leave_parent() noexcept {
  if (!std::exchange(shared_, false)) return;  // a grandchild has the child's pages
  make_private(file_, bytes_);
}

std::size_t Arena::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::string Arena::ticket() const {
  return pack({std::to_string(::getpid()), std::to_string(file_.file),
               std::to_string(reinterpret_cast<std::uintptr_t>(memory_)), std::to_string(bytes_),
               std::to_string(nonce_)});
}

std::shared_ptr<ArenaView> ArenaView::of(const std::string& ticket) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::weak_ptr<ArenaView>>;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known.find(ticket); found != known.end())
    if (auto view = found->second.lock()) return view;
  std::shared_ptr<ArenaView> view(new ArenaView);
  try {
    RecordReader record("a rank's group memory", ticket);
    const auto pid = record.number<std::int64_t>("pid", 1, kMaxPid);
    const int file = record.number<int>("file", 0);
    view->base_ = record.number<std::uint64_t>("address");
    view->bytes_ = record.number<std::size_t>("bytes", kGrain, kMostBytes);
    const auto nonce = record.number<std::uint64_t>("nonce");
    record.end();
    void* const memory = map_file_of(pid, file, view->bytes_);
    view->memory_ = static_cast<std::byte*>(memory);
    if (!memory || static_cast<const Header*>(memory)->nonce != nonce) return nullptr;
  } catch (const Error& e) {
    log(LogLevel::Warn, "INIT", e.what());
    return nullptr;
  }
  known.insert_or_assign(ticket, view);
  return view;
}

ArenaView::~ArenaView() {
  if (memory_) ::munmap(memory_, bytes_);
}

}  // namespace mpi_gdr::shm
