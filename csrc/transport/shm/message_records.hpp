// What travels in the rings (ring.hpp) between ranks of a node that send each other messages.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/error.hpp"
#include "transport/shm/ring.hpp"

namespace mpi_gdr::shm {

// Offer and Eager are matched in their order; the others belong to the offer with their id.
enum Kind : std::uint32_t {
  kEager = 1,  // the message itself
  kOffer,      // of a long one: where it is
  kGo,         // it is wanted through the ring
  kPiece,      // of it
  kOpened,     // both ends copy it: where it goes
  kDone        // it is there, or will never be taken
};

// The payload of Offer and Opened: an address in the memory of the rank that writes it.
using Where = std::uint64_t;

inline Where where(const std::byte* payload) {
  Where where = 0;
  std::memcpy(&where, payload, sizeof where);
  return where;
}

// False: there is no room.
inline bool publish_where(RingWriter& ring, const void* memory, RecordHeader header) {
  std::byte* const payload = ring.reserve(sizeof(Where));
  if (!payload) return false;
  const Where where = reinterpret_cast<std::uintptr_t>(memory);
  std::memcpy(payload, &where, sizeof where);
  header.payload = sizeof where;
  ring.publish(header);
  return true;
}

// It comes from another process.
inline void expect(bool condition, const RecordHeader& header) {
  if (!condition)
    fail(ErrorCode::Internal, "a message record in shared memory is none: kind ", header.kind, ", ",
         header.payload, " of ", header.bytes, " bytes");
}

}  // namespace mpi_gdr::shm
