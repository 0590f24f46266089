#include "transport/shm/node_memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <thread>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/record.hpp"

namespace mpi_gdr::shm {
namespace {

constexpr std::uint64_t kMagic = 0x6d70696764723407;

// A rank's result, published while it attaches.
enum Verdict : std::uint32_t { kPending, kFailed, kSegmentsOnly, kEverything, kAndArenas = 16 };

struct Header {
  std::uint64_t magic = 0, nonce = 0;
  std::uint64_t probed = 0;  // another rank writes here through the kernel
  std::atomic<std::uint32_t> verdict{kPending};
  SlotUses uses[kSlotChannels] = {};
  RivalWords rivals[kSlotChannels] = {};
};

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAllSlots = std::size_t{kSlotChannels} * kSlots;
constexpr std::size_t kRecordsBytes = kAllSlots * 2 * sizeof(CallRecord);  // behind the slots
constexpr std::size_t kSlotsBytes = (kAllSlots * sizeof(Slot) + kRecordsBytes + kPage - 1) / kPage * kPage;
constexpr std::size_t kStagingStart = kPage + kSlotsBytes;
constexpr std::size_t kDevicesStart = kStagingStart + std::size_t{kSlotChannels} * kSlots * kStagingBytes;
static_assert(sizeof(Header) <= kPage);

Header& header(void* memory) { return *static_cast<Header*>(memory); }

struct Ticket {
  std::int64_t pid = 0;
  int file = -1;
  std::uint64_t nonce = 0, address = 0;
  std::size_t message_bytes = 0;
  std::string arena;  // its ticket; "" if it has none
};

// nullopt: no ticket, or a malformed one.
std::optional<Ticket> parse(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    RecordReader record("a rank's shared memory", text);
    Ticket ticket;
    ticket.pid = record.number<std::int64_t>("pid", 1, kMaxPid);
    ticket.file = record.number<int>("file", 0);
    ticket.nonce = record.number<std::uint64_t>("nonce");
    ticket.address = record.number<std::uint64_t>("address");
    ticket.message_bytes = record.number<std::size_t>("bytes for messages", 0, kMostBytes);
    ticket.arena = record.text("arena");
    record.end();
    return ticket;
  } catch (const Error& e) {
    log(LogLevel::Warn, "INIT", e.what());
    return std::nullopt;
  }
}

enum class Direction : std::uint8_t { Read, Write };

// 0 or errno. The kernel may copy less than asked for.
int transfer(Direction direction, std::int64_t pid, void* here, std::uint64_t there, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(here);
  while (bytes > 0) {
    const iovec local{at, bytes}, remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t moved = direction == Direction::Read
                              ? ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0)
                              : ::process_vm_writev(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    at += moved;
    there += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace

Segment::Segment(const Arena* arena, std::size_t message_bytes, std::size_t device_bytes)
    : arena_(arena),
      message_bytes_(message_bytes),
      device_bytes_(device_bytes),
      file_(make_memory_file(bytes())) {
  Header* const made = new (file_.memory) Header;
  made->nonce = nonce_;
  made->magic = kMagic;
  std::byte* at = static_cast<std::byte*>(file_.memory) + kPage;
  for (std::size_t i = 0; i < kAllSlots; ++i, at += sizeof(Slot)) new (at) Slot{};
  for (std::size_t i = 0; i < 2 * kAllSlots; ++i, at += sizeof(CallRecord)) new (at) CallRecord{};
}

Segment::~Segment() {
  std::uint32_t pending = kPending;
  header(file_.memory)
      .verdict.compare_exchange_strong(pending, kFailed, std::memory_order_release,
                                       std::memory_order_relaxed);
  release(file_, bytes());
}

std::size_t Segment::bytes() const { return kDevicesStart + device_bytes_ + message_bytes_; }

std::string Segment::ticket() const {
  return pack({std::to_string(::getpid()), std::to_string(file_.file), std::to_string(nonce_),
               std::to_string(reinterpret_cast<std::uintptr_t>(&header(file_.memory).nonce)),
               std::to_string(message_bytes_), arena_ ? arena_->ticket() : ""});
}

NodeMemory::NodeMemory(std::unique_ptr<Segment> own, int rank, std::size_t size, std::vector<int> members)
    : own_(std::move(own)), rank_(rank), peers_(size), members_(std::move(members)) {
  for (Seen& seen : seen_) seen.ended.resize(members_.size());
}

NodeMemory::~NodeMemory() {
  for (const int r : members_)
    if (r != rank_ && peer(r).memory) ::munmap(peer(r).memory, peer(r).bytes);
}

bool NodeMemory::probe(int rank) const {
  const Peer& peer = this->peer(rank);
  std::uint64_t value = 0;
  if (transfer(Direction::Read, peer.pid, &value, peer.nonce_address, sizeof value) != 0) return false;
  constexpr std::size_t to_probed = offsetof(Header, probed) - offsetof(Header, nonce);
  return value == peer.nonce &&
         transfer(Direction::Write, peer.pid, &value, peer.nonce_address + to_probed, sizeof value) == 0;
}

Reach NodeMemory::attach(const std::vector<std::string>& tickets) {
  bool everything = true;
  message_bytes_ = own_->message_bytes_;
  for (const int r : members_) {
    const auto parsed = parse(tickets[static_cast<std::size_t>(r)]);
    if (!parsed) return Reach::None;
    const Ticket& ticket = *parsed;
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.pid = ticket.pid;
    peer.nonce = ticket.nonce;
    peer.nonce_address = ticket.address;
    peer.bytes = kDevicesStart + own_->device_bytes_ + ticket.message_bytes;
    message_bytes_ = std::min(message_bytes_, ticket.message_bytes);
    if (r == rank_) {
      peer.memory = static_cast<std::byte*>(own_->file_.memory);
      continue;
    }
    void* memory = map_file_of(ticket.pid, ticket.file, peer.bytes);
    if (!memory) return Reach::None;
    peer.memory = static_cast<std::byte*>(memory);
    if (header(memory).magic != kMagic || header(memory).nonce != ticket.nonce) return Reach::None;
    everything = everything && probe(r);
    if (!ticket.arena.empty()) peer.arena = ArenaView::of(ticket.arena);  // null: copied by the kernel
    arenas_mapped_ = arenas_mapped_ && (ticket.arena.empty() || peer.arena);
  }
  return everything ? Reach::All : Reach::Segments;
}

std::unique_ptr<NodeMemory> NodeMemory::create(std::unique_ptr<Segment> own, int rank,
                                               const std::vector<std::string>& tickets,
                                               std::chrono::steady_clock::time_point deadline,
                                               const std::function<void()>& poll, std::vector<int> members) {
  if (members.empty()) {
    members.resize(tickets.size());
    std::iota(members.begin(), members.end(), 0);
  }
  std::unique_ptr<NodeMemory> node(new NodeMemory(std::move(own), rank, tickets.size(), std::move(members)));
  Reach reach = node->attach(tickets);
  header(node->own_->file_.memory)
      .verdict.store(reach == Reach::None ? kFailed
                                          : (reach == Reach::Segments ? kSegmentsOnly : kEverything) |
                                                (node->arenas_mapped_ ? kAndArenas : Verdict{}),
                     std::memory_order_release);
  // A rank that could not map a segment publishes kFailed, so that all have the same result.
  for (const int r : node->members_) {
    if (reach == Reach::None) break;
    const auto& verdict = header(node->peer(r).memory).verdict;
    std::uint32_t answer;
    while ((answer = verdict.load(std::memory_order_acquire)) == kPending) {
      if (std::chrono::steady_clock::now() > deadline)
        fail(ErrorCode::Timeout, "rank ", r,
             " of the group did not attach to the shared memory before the timeout");
      if (poll) poll();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    node->arenas_mapped_ = node->arenas_mapped_ && (answer & kAndArenas);
    answer &= ~static_cast<std::uint32_t>(kAndArenas);
    if (answer == kFailed) reach = Reach::None;
    if (answer == kSegmentsOnly && reach == Reach::All) reach = Reach::Segments;
  }
  node->reach_ = reach;
  if (reach != Reach::None) {  // all have attached: no /proc entry is needed
    ::close(node->own_->file_.file);
    node->own_->file_.file = -1;
  }
  return node;
}

SlotUses& NodeMemory::uses(int rank, int channel) const { return header(peer(rank).memory).uses[channel]; }

RivalWords& NodeMemory::rival_words(int rank, int channel) const {
  return header(peer(rank).memory).rivals[channel];
}

bool NodeMemory::is_copied(const void* first, const void* second) {
  std::byte bytes[2];
  const iovec local{bytes, sizeof bytes};
  iovec remote[2];
  unsigned long count = 0;
  for (const void* memory : {first, second})
    if (memory) remote[count++] = {const_cast<void*>(memory), 1};
  return count == 0 ||
         ::process_vm_readv(::getpid(), &local, 1, remote, count, 0) == static_cast<ssize_t>(count);
}

std::byte* NodeMemory::staging(int rank, int channel, int number) const {
  static_assert(kSlotsStart == kPage);
  return peer(rank).memory + kStagingStart +
         static_cast<std::size_t>(channel * kSlots + number) * kStagingBytes;
}

std::byte* NodeMemory::devices(int rank) const { return peer(rank).memory + kDevicesStart; }

void NodeMemory::fail_at(int rank, const char* what, int error) const {
  fail(ErrorCode::System, "memory of rank ", rank, " (pid ", peer(rank).pid, ") cannot be ", what, ": ",
       error ? std::strerror(error) : "its process has ended and its pid was reused");
}

// The nonce is checked after a read and before a write: the pid may have been reused.
bool NodeMemory::try_read(int rank, void* to, std::uint64_t from, std::size_t bytes) const {
  const Peer& peer = this->peer(rank);
  std::uint64_t nonce = 0;
  const iovec local[] = {{to, bytes}, {&nonce, sizeof nonce}};
  const iovec remote[] = {{reinterpret_cast<void*>(from), bytes},
                          {reinterpret_cast<void*>(peer.nonce_address), sizeof nonce}};
  const ssize_t moved = ::process_vm_readv(static_cast<pid_t>(peer.pid), local, 2, remote, 2, 0);
  int refused = 0;
  if (moved !=
      static_cast<ssize_t>(bytes + sizeof nonce)) {  // interrupted, or more than the kernel does at once
    int error = refused = transfer(Direction::Read, peer.pid, to, from, bytes);
    if (error == 0 || error == EFAULT)
      error = transfer(Direction::Read, peer.pid, &nonce, peer.nonce_address, sizeof nonce);
    if (error != 0) fail_at(rank, "read", error);
  }
  if (nonce != peer.nonce) fail_at(rank, "read", 0);
  return refused == 0;
}

bool NodeMemory::try_write(int rank, std::uint64_t to, const void* from, std::size_t bytes) const {
  const Peer& peer = this->peer(rank);
  std::uint64_t nonce = 0;
  int error = transfer(Direction::Read, peer.pid, &nonce, peer.nonce_address, sizeof nonce);
  if (error == 0 && nonce != peer.nonce) fail_at(rank, "written", 0);
  if (error != 0) fail_at(rank, "written", error);
  error = transfer(Direction::Write, peer.pid, const_cast<void*>(from), to, bytes);
  if (error != 0 && error != EFAULT) fail_at(rank, "written", error);
  return error == 0;
}

void NodeMemory::read(int rank, void* to, std::uint64_t from, std::size_t bytes) const {
  if (!try_read(rank, to, from, bytes)) fail_at(rank, "read", EFAULT);
}

void NodeMemory::write(int rank, std::uint64_t to, const void* from, std::size_t bytes) const {
  if (!try_write(rank, to, from, bytes)) fail_at(rank, "written", EFAULT);
}

}  // namespace mpi_gdr::shm
