// A ring of bytes in shared memory. One writer and one reader, each in one thread at a time; never blocks.
//
// Positions are growing 64-bit counts of bytes. A record is a header and its payload, in whole cache lines.
// The stamp in its header (its position + 1, stored with release order) publishes it: a short message is one
// cache line to its reader. The writer clears the next stamp before that. The reader stores its position in
// `tail`, which the writer reads only when it is out of room. Memory and tail are zero at first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/doorbell.hpp"

namespace mpi_gdr::shm {

inline constexpr std::size_t kLine = 64;

// A record without its payload; the ring itself uses kind and payload length only.
struct RecordHeader {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;  // of the message
  std::uint32_t payload = 0;
  std::int32_t tag = 0;
  std::uint32_t kind = 0;  // > 0
  std::uint32_t unused = 0;
};

struct Record {
  std::atomic<std::uint64_t> stamp;
  RecordHeader header;
};
static_assert(sizeof(Record) == 40);

constexpr std::size_t record_bytes(std::size_t payload) {
  return (sizeof(Record) + payload + kLine - 1) / kLine * kLine;
}

template <typename Tail>
class RingEnd {
 public:
  // `bytes`: of the ring, a power of two. `sleepers`: threads that wait for this end's writes.
  RingEnd() = default;
  RingEnd(std::byte* memory, std::size_t bytes, Tail* tail, const std::atomic<std::uint32_t>* sleepers)
      : memory_(memory), bytes_(bytes), tail_(tail), sleepers_(sleepers) {}
  std::size_t bytes() const { return bytes_; }

 protected:
  Record& record(std::uint64_t at) const { return *reinterpret_cast<Record*>(memory_ + (at & (bytes_ - 1))); }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Tail* tail_ = nullptr;
  const std::atomic<std::uint32_t>* sleepers_ = nullptr;
  std::uint64_t at_ = 0;  // position
};

class RingWriter : public RingEnd<const std::atomic<std::uint64_t>> {
 public:
  using RingEnd::RingEnd;

  // Where the next record's payload goes; null: no room now. At most max_payload() bytes.
  std::byte* reserve(std::size_t payload);
  // Publishes the reserved record; `header.payload` is at most what was reserved.
  void publish(const RecordHeader& header) { put(header, record_bytes(header.payload)); }
  std::size_t max_payload() const { return bytes_ / 4; }
  // For the flag that changes when there is room, after reserve() found none.
  Doorbell bell(std::atomic<std::uint32_t>* sleepers) const { return {tail_, seen_, sleepers}; }

 private:
  void put(const RecordHeader& header, std::size_t size);

  std::uint64_t seen_ = 0;  // the tail, as last read
};

class RingReader : public RingEnd<std::atomic<std::uint64_t>> {
 public:
  using RingEnd::RingEnd;

  // The next record's payload, valid until pop(), or null; sets `header`. Throws Internal if it is malformed.
  const std::byte* peek(RecordHeader& header);
  void pop();
  // Call after pop()s: wakes a writer that waits for room.
  void ring();
  // For the flag that changes with the next record, after peek() found none; false if there is one now.
  bool bell(Doorbell& bell, std::atomic<std::uint32_t>* sleepers) const;

 private:
  std::uint64_t rung_ = 0;
  std::size_t size_ = 0;  // of the record at at_
};

// Layout of a rank's area: by writer the tail and the backlog of the ring that it reads, and the cells of
// what it receives (two_ended_copy.hpp); by reader the rings that it writes. Unused parts take no memory.
class MessageArea {
 public:
  static constexpr int kCopyLines = 8;  // by writer
  explicit MessageArea(int size);
  std::size_t bytes() const { return rings_ + static_cast<std::size_t>(size_) * ring_bytes_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  // Threads that wait for a flag in this area; many writers.
  std::atomic<std::uint32_t>& sleepers(std::byte* area) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(area);
  }
  std::atomic<std::uint64_t>& tail(std::byte* area, int writer) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(area +
                                                          (static_cast<std::size_t>(writer) + 1) * kLine);
  }
  // Written by the area's owner, read by `writer`.
  std::atomic<std::uint64_t>& backlog(std::byte* area, int writer) const { return (&tail(area, writer))[1]; }
  std::byte* copy_lines(std::byte* area, int writer) const {
    return area + static_cast<std::size_t>(size_ + kCopyLines * writer + 1) * kLine;
  }
  std::byte* ring(std::byte* area, int reader) const {
    return area + rings_ + static_cast<std::size_t>(reader) * ring_bytes_;
  }

 private:
  int size_;
  std::size_t ring_bytes_, rings_;
};

}  // namespace mpi_gdr::shm
