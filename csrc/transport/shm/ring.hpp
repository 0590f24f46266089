// A ring of bytes in shared memory by which one rank sends records to another: one writer, one reader.
//
// Positions are 64-bit counts of bytes that only grow. A record is a header and its payload, and takes whole
// cache lines. The stamp in its header (its position + 1, stored with release order) publishes it, so that a
// short message is one cache line to its reader; the writer clears the next stamp before that. The reader
// stores its position in `tail`, which the writer reads only when it knows of no room.
//
// Memory and tail are zero at first. Nothing blocks. Writer and reader are each used by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/doorbell.hpp"

namespace mpi_gdr::shm {

inline constexpr std::size_t kLine = 64;

// What a record carries besides its payload; the ring itself only looks at the payload's length.
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
  // `bytes`: of the ring, a power of two. `sleepers`: of those who wait for what this end writes.
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

  // Where the payload of the next record goes; null: there is no room now. At most max_payload() bytes.
  std::byte* reserve(std::size_t payload);
  // The record that was reserved; `header.payload` is at most what was reserved.
  void publish(const RecordHeader& header) { put(header, record_bytes(header.payload)); }
  std::size_t max_payload() const { return bytes_ / 4; }
  // Of the flag that changes when there is room again, after reserve() found none.
  Doorbell bell(std::atomic<std::uint32_t>* sleepers) const { return {tail_, seen_, sleepers}; }

 private:
  void put(const RecordHeader& header, std::size_t size);

  std::uint64_t seen_ = 0;  // the last look at the tail
};

class RingReader : public RingEnd<std::atomic<std::uint64_t>> {
 public:
  using RingEnd::RingEnd;

  // The next record, or null: a copy of its header, and where its payload is until pop(). Throws Internal for
  // a header from the other process that does not fit.
  const std::byte* peek(RecordHeader& header);
  void pop();
  // After some pop(): wakes a writer that sleeps until there is room.
  void ring();
  // Of the flag that changes with the next record, after peek() found none; false if there is one now.
  bool bell(Doorbell& bell, std::atomic<std::uint32_t>* sleepers) const;

 private:
  std::uint64_t rung_ = 0;
  std::size_t size_ = 0;  // of the record at at_
};

// Where the rings of a group are in each rank's area: by writer the tail and the backlog of the ring that it
// reads, and lines for the copies of what it receives (two_ended_copy.hpp); then by reader the rings that it
// writes. Only what is used takes memory.
class MessageArea {
 public:
  static constexpr int kCopyLines = 8;  // by writer
  explicit MessageArea(int size);
  std::size_t bytes() const { return rings_ + static_cast<std::size_t>(size_) * ring_bytes_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  // Of the ranks that wait for a flag in this area; many writers.
  std::atomic<std::uint32_t>& sleepers(std::byte* area) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(area);
  }
  std::atomic<std::uint64_t>& tail(std::byte* area, int writer) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(area +
                                                          (static_cast<std::size_t>(writer) + 1) * kLine);
  }
  // Written by the area's owner, read by that writer.
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
