#include "bootstrap/board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "common/error.hpp"

#ifndef F_SEAL_FUTURE_WRITE  // Linux 5.1
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace mpigdr {
namespace {

constexpr std::uint64_t kMagic = 0x6d70696764725f62;
constexpr int kSizeIsFinal = F_SEAL_SHRINK | F_SEAL_GROW;

struct Header {
  std::uint64_t magic = 0, nonce = 0;
  // Bytes of texts behind the header. seq_cst: a rank that leaves posts that and then reads the others'
  // boards; of two that leave together at least one sees the other.
  std::atomic<std::uint64_t> used{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::size_t kStart = 64;  // of the texts: each behind its length
using Length = std::uint32_t;
static_assert(sizeof(Header) <= kStart);

}  // namespace

Board::Board() {
  file_ = ::memfd_create("mpi-gdr-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file_ < 0) fail(ErrorCode::System, "memfd_create: ", std::strerror(errno));
  std::uint64_t nonce = 0;
  // The size is sealed, so that no reader can be made to read beyond the end. Kernels before 5.1 cannot take
  // away later writable mappings; the mode then keeps other users out, as it does in any case.
  if (::ftruncate(file_, kBytes) != 0 || ::fchmod(file_, 0600) != 0 ||
      ::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce) ||
      (memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0)) ==
          MAP_FAILED ||
      ::fcntl(file_, F_ADD_SEALS, kSizeIsFinal) != 0) {
    const int error = errno;
    ::close(file_);
    fail(ErrorCode::System, "shared memory of ", kBytes, " bytes: ", std::strerror(error));
  }
  ::madvise(memory_, kBytes, MADV_DONTDUMP);
  ::fcntl(file_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  Header* const header = new (memory_) Header;
  header->nonce = nonce;
  header->magic = kMagic;
}

Board::~Board() {
  ::munmap(memory_, kBytes);
  ::close(file_);
}

Board::Ticket Board::ticket() const { return {::getpid(), file_, static_cast<Header*>(memory_)->nonce}; }

bool Board::post(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Header& header = *static_cast<Header*>(memory_);
  const std::uint64_t used = header.used.load(std::memory_order_relaxed);
  const auto length = static_cast<Length>(text.size());
  if (text.size() > kLongest || kStart + used + sizeof length + text.size() > kBytes) return false;
  char* const at = static_cast<char*>(memory_) + kStart + used;
  std::memcpy(at, &length, sizeof length);
  std::memcpy(at + sizeof length, text.data(), text.size());
  header.used.store(used + sizeof length + text.size(), std::memory_order_seq_cst);
  return true;
}

std::unique_ptr<BoardReader> BoardReader::open(const Board::Ticket& ticket) {
  const std::string path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.file);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return nullptr;
  struct stat status{};
  const int seals = ::fcntl(file, F_GET_SEALS);  // -1: of a file that has none
  const bool fits = ::fstat(file, &status) == 0 && status.st_uid == ::geteuid() &&
                    status.st_size == static_cast<off_t>(Board::kBytes) && seals >= 0 &&
                    (seals & kSizeIsFinal) == kSizeIsFinal;
  void* const memory =
      fits ? ::mmap(nullptr, Board::kBytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<BoardReader> reader(new BoardReader(memory));
  const Header& header = *static_cast<const Header*>(memory);
  return header.magic == kMagic && header.nonce == ticket.nonce ? std::move(reader) : nullptr;
}

BoardReader::~BoardReader() { ::munmap(const_cast<void*>(memory_), Board::kBytes); }

std::vector<std::string> BoardReader::read(std::size_t& place) const {
  const std::size_t used = static_cast<const Header*>(memory_)->used.load(std::memory_order_seq_cst);
  const char* const texts = static_cast<const char*>(memory_) + kStart;
  std::vector<std::string> found;
  while (used <= Board::kBytes - kStart && place + sizeof(Length) <= used) {
    Length length = 0;
    std::memcpy(&length, texts + place, sizeof length);
    if (length > Board::kLongest || length > used - place - sizeof length) {
      place = Board::kBytes;  // beyond every text
      break;
    }
    found.emplace_back(texts + place + sizeof length, length);
    place += sizeof length + length;
  }
  return found;
}

}  // namespace mpigdr
