#include "bootstrap/board.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

namespace mpi_gdr {
namespace {

constexpr std::uint64_t kMagic = 0x6d70696764725f62;

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
  const std::uint64_t nonce = draw_nonce();
  file_ = make_memory_file(kBytes, Writers::Owner);
  Header* const header = new (file_.memory) Header;
  header->nonce = nonce;
  header->magic = kMagic;
}

Board::~Board() { release(file_, kBytes); }

Board::Ticket Board::ticket() const {
  return {::getpid(), file_.file, static_cast<Header*>(file_.memory)->nonce};
}

bool Board::post(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Header& header = *static_cast<Header*>(file_.memory);
  const std::uint64_t used = header.used.load(std::memory_order_relaxed);
  const auto length = static_cast<Length>(text.size());
  if (text.size() > kLongest || kStart + used + sizeof length + text.size() > kBytes) return false;
  char* const at = static_cast<char*>(file_.memory) + kStart + used;
  std::memcpy(at, &length, sizeof length);
  std::memcpy(at + sizeof length, text.data(), text.size());
  header.used.store(used + sizeof length + text.size(), std::memory_order_seq_cst);
  return true;
}

std::unique_ptr<BoardReader> BoardReader::open(const Board::Ticket& ticket) {
  void* const memory = map_file_of(ticket.pid, ticket.file, Board::kBytes, Writers::Owner);
  if (!memory) return nullptr;
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

}  // namespace mpi_gdr
