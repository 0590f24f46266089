#include "transport/shm/ring.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace mpi_gdr::shm {
namespace {

// Fills the rest before the ring's end; without payload.
constexpr std::uint32_t kSkip = 0xffffffff;

constexpr std::size_t kMostRing = std::size_t{1} << 20, kLeastRing = std::size_t{32} << 10;
// All rings of a writer together.
constexpr std::size_t kMostRings = std::size_t{8} << 20;
constexpr std::size_t kPage = 4096;

}  // namespace

std::byte* RingWriter::reserve(std::size_t payload) {
  MPI_GDR_CHECK(payload <= max_payload());
  const std::size_t size = record_bytes(payload), to_end = bytes_ - (at_ & (bytes_ - 1));
  const bool wraps = size > to_end;
  // Includes the next stamp's line, which is cleared beforehand.
  const std::uint64_t end = at_ + (wraps ? to_end : 0) + size + kLine;
  if (end - seen_ > bytes_) {
    seen_ = tail_->load(std::memory_order_acquire);
    if (end - seen_ > bytes_) return nullptr;
  }
  if (wraps) put({.kind = kSkip}, to_end);  // also wakes a reader that sleeps on this record
  return memory_ + (at_ & (bytes_ - 1)) + sizeof(Record);
}

void RingWriter::put(const RecordHeader& header, std::size_t size) {
  Record& here = record(at_);
  here.header = header;
  record(at_ + size).stamp.store(0, std::memory_order_relaxed);
  here.stamp.store(at_ + 1, std::memory_order_release);
  at_ += size;
  Doorbell::ring(here.stamp, *sleepers_);
}

const std::byte* RingReader::peek(RecordHeader& header) {
  for (;;) {
    const Record& here = record(at_);
    if (here.stamp.load(std::memory_order_acquire) != at_ + 1) return nullptr;
    header = here.header;
    const std::size_t to_end = bytes_ - (at_ & (bytes_ - 1));
    if (header.kind != kSkip) {
      if (header.payload > bytes_ / 4 || record_bytes(header.payload) > to_end)
        fail(ErrorCode::Internal, "a message record of ", header.payload,
             " bytes in shared memory, expected at most ", std::min(bytes_ / 4, to_end));
      size_ = record_bytes(header.payload);
      return reinterpret_cast<const std::byte*>(&here) + sizeof(Record);
    }
    size_ = to_end;
    pop();
  }
}

void RingReader::pop() {
  at_ += size_;
  tail_->store(at_, std::memory_order_release);
}

void RingReader::ring() {
  if (rung_ == at_) return;
  rung_ = at_;
  Doorbell::ring(*tail_, *sleepers_);
}

bool RingReader::bell(Doorbell& bell, std::atomic<std::uint32_t>* sleepers) const {
  const auto& flag = record(at_).stamp;
  const std::uint64_t seen = flag.load(std::memory_order_acquire);
  if (seen == at_ + 1) return false;
  bell = {&flag, seen, sleepers};
  return true;
}

MessageArea::MessageArea(int size) : size_(size), ring_bytes_(kMostRing) {
  const auto ranks = static_cast<std::size_t>(size);
  while (ring_bytes_ > kLeastRing && ring_bytes_ * ranks > kMostRings) ring_bytes_ /= 2;
  rings_ = (((kCopyLines + 1) * ranks + 1) * kLine + kPage - 1) / kPage * kPage;
}

}  // namespace mpi_gdr::shm
