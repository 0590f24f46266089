// Moves bytes between the ranks of a group. Used by one thread at a time, the holder of the engine's progress
// role. No call blocks. Buffers are the caller's and valid until the request is done. Throws Error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/error.hpp"
#include "common/types.hpp"
#include "transport/doorbell.hpp"

namespace mpi_gdr {

inline constexpr int kAnySource = -1;
// Callers cut longer messages: MPI counts are 32-bit.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 30;

// An outstanding transfer, kept by the caller and passed back by reference. Opaque to the caller.
struct Request {
  std::uint64_t handle = 0;
  bool active = false;
  std::uint8_t carrier = 0;  // of layered transports: the one that owns the request
};

struct RecvStatus {
  int source = -1;
  int tag = -1;
  std::size_t bytes = 0;
};

// Channels never match each other. Tags are per channel.
enum class Channel : std::uint8_t {
  Collective,   // schedules on host tensors; tags are the engine's
  Accelerator,  // schedules on accelerator tensors, issued in an order of their own
  PointToPoint  // user's send/recv; tags are the user's
};
inline constexpr int kChannelCount = 3;

struct NativeCollective {
  Collective collective = Collective::Barrier;
  const void* input = nullptr;  // == output: in place
  void* output = nullptr;
  std::uint64_t count = 0;  // as in CollectiveSpec
  DataType dtype = DataType::UInt8;
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Largest tag (MPI guarantees 32767).
  virtual int max_tag() const = 0;

  // `bytes` <= kMaxMessageBytes; 0 bytes are sent too. An inactive request: already done.
  virtual Request isend(Channel channel, const void* data, std::size_t bytes, int peer, int tag) = 0;
  // `peer` may be kAnySource. test() throws for a message longer than `bytes`.
  virtual Request irecv(Channel channel, void* data, std::size_t bytes, int peer, int tag) = 0;
  // True once done (then inactive), and for an inactive request. `status`: of receives only; may be null.
  virtual bool test(Request& request, RecvStatus* status = nullptr) = 0;
  // Abandons a pending request (then inactive). The caller leaks the buffer, which may still be written.
  virtual void abandon(Request& request) = 0;

  // If an active request waited for one flag of another process at its last test(), stores it in `bell`.
  // False: none.
  virtual bool doorbell(const Request& request, Doorbell& bell) const { return false; }
  // Bytes of an active request that this side has moved; 0 where the library moves them.
  virtual std::uint64_t bytes_moved(const Request& request) const { return 0; }

  // Whether istart_native() has exactly our semantics, NaN aside. Equal on all ranks.
  virtual bool has_native(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count) const = 0;
  // Called in the same order on all ranks, per channel.
  virtual Request istart_native(Channel channel, const NativeCollective& collective) = 0;

  // The path of user messages, such as "mpi"; a string literal. "": the transport has only one.
  virtual const char* message_path() const { return ""; }
  // Whether user messages call no library that may block.
  virtual bool messages_in_memory() const { return false; }

  // The library's transport, on which others are layered.
  virtual const Transport& library() const { return *this; }

  // Frees the library's resources of the group: called last, by all members, without outstanding requests.
  virtual void close() noexcept {}
};

inline void check_message(const Transport& transport, const char* operation, std::size_t bytes, int peer,
                          int tag, const char* limit = "") {
  if (bytes > kMaxMessageBytes)
    fail(ErrorCode::InvalidUsage, operation, ": ", bytes, " bytes in one message, at most ",
         kMaxMessageBytes);
  if (peer < 0 || peer >= transport.size())
    fail(ErrorCode::InvalidUsage, operation, ": peer=", peer, " is not in 0..", transport.size() - 1);
  if (tag < 0 || tag > transport.max_tag())
    fail(ErrorCode::InvalidUsage, operation, ": tag=", tag, " is not in 0..", transport.max_tag(), limit);
}

// abandon() for a failed operation, ignoring errors.
inline void abandon_quietly(Transport& transport, Request& request) noexcept {
  try {
    transport.abandon(request);
  } catch (...) {
  }
}

}  // namespace mpi_gdr
