#pragma once

#include <cstdint>
#include <cstring>

#include "common/error.hpp"
#include "transport/shm/ring.hpp"

namespace mpi_gdr::shm {

// Offer and Eager are matched in order; the others name the offer's id.
enum Kind : std::uint32_t {
  kEager = 1,  // the message itself
  kOffer,      // the address of a long message
  kGo,         // asks the sender to send the offered message through the ring
  kPiece,      // a part of that message
  kOpened,     // the destination of an offered message that both ends copy
  kDone        // an offered message has been received, or never will be
};

// Payload of Offer and Opened: an address in its writer's process.
using Where = std::uint64_t;

inline Where where(const std::byte* payload) {
  Where where = 0;
  std::memcpy(&where, payload, sizeof where);
  return where;
}

// False: no room.
inline bool publish_where(RingWriter& ring, const void* memory, RecordHeader header) {
  std::byte* const payload = ring.reserve(sizeof(Where));
  if (!payload) return false;
  const Where where = reinterpret_cast<std::uintptr_t>(memory);
  std::memcpy(payload, &where, sizeof where);
  header.payload = sizeof where;
  ring.publish(header);
  return true;
}

// Checks what another process wrote.
inline void expect(bool condition, const RecordHeader& header) {
  if (!condition)
    fail(ErrorCode::Internal, "a message record in shared memory is malformed: kind ", header.kind, ", ",
         header.payload, " of ", header.bytes, " bytes");
}

}  // namespace mpi_gdr::shm
