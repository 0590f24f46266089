#include "transport/ipc/node_flags.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "common/memory_file.hpp"

namespace mpi_gdr::ipc {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t in_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

std::size_t NodeFlags::flag_bytes() const {
  return std::size_t{(kGraphSlot + 1)} * kKinds * static_cast<std::size_t>(size_) * sizeof(Line);
}

NodeFlags::NodeFlags(int rank, int size, std::vector<int> members, std::size_t more)
    : rank_(rank),
      size_(size),
      segment_bytes_(kPage + in_pages(flag_bytes() + more)),
      nonce_(draw_nonce()),
      members_(std::move(members)),
      segments_(static_cast<std::size_t>(size)),
      lines_(static_cast<std::size_t>(size)) {
  const MemoryFile made = make_memory_file(segment_bytes_);
  file_ = made.file;
  std::memcpy(made.memory, &nonce_, sizeof nonce_);
  open(rank, made.memory);
}

NodeFlags::~NodeFlags() {
  for (void* const segment : segments_)
    if (segment) ::munmap(segment, segment_bytes_);
  if (file_ >= 0) ::close(file_);
}

void NodeFlags::keep_mapped() {
  segments_.clear();
  file_ = -1;
}

void NodeFlags::open(int owner, void* memory) {
  segments_[static_cast<std::size_t>(owner)] = memory;
  lines_[static_cast<std::size_t>(owner)] = reinterpret_cast<Line*>(static_cast<std::byte*>(memory) + kPage);
}

Ticket NodeFlags::ticket() const {
  Ticket ticket;
  ticket.pid = ::getpid();
  ticket.file = file_;
  ticket.nonce = nonce_;
  return ticket;
}

bool NodeFlags::attach(int owner, const Ticket& theirs) {
  if (owner == rank_) return true;
  void* const memory = map_file_of(theirs.pid, theirs.file, segment_bytes_);
  if (!memory) return false;
  open(owner, memory);
  return std::memcmp(memory, &theirs.nonce, sizeof theirs.nonce) == 0;
}

}  // namespace mpi_gdr::ipc
