// The state that the endpoints of a loopback group share: requests, unmatched messages, natives in progress.
// Thread-safe: one lock around everything, held for the copies as well. Only loopback.cpp uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/loopback/loopback.hpp"
#include "transport/transport.hpp"

namespace mpigdr::loopback {

class World {
 public:
  World(int size, const LoopbackOptions& options);

  std::uint64_t send(Channel channel, const void* data, std::size_t bytes, int from, int to, int tag,
                     bool lost);
  std::uint64_t receive(Channel channel, void* data, std::size_t bytes, int from, int to, int tag);
  std::uint64_t native(Channel channel, int rank, const NativeCollective& collective, bool lost);
  // True once done, and the handle is free for reuse; throws what went wrong with the request.
  bool test(std::uint64_t handle, RecvStatus* status);
  void abandon(std::uint64_t handle);

 private:
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};

  struct Slot {
    bool done = false;
    unsigned late_tests = 0;
    RecvStatus status;
    std::string error;
  };
  struct Message {
    int source, tag;
    std::size_t bytes;
    std::vector<std::byte> buffered;  // eager
    const void* data;                 // not eager: the sender's memory
    std::uint64_t sender;             // request to complete on matching; kNobody if none
    const std::byte* bytes_at() const { return data ? static_cast<const std::byte*>(data) : buffered.data(); }
  };
  struct Receive {
    int source, tag;
    std::size_t bytes;
    void* data;
    std::uint64_t receiver;
    bool accepts(const Message& m) const {
      return (source == kAnySource || source == m.source) && tag == m.tag;
    }
  };
  struct Mailbox {
    std::list<Message> unexpected;
    std::list<Receive> posted;
  };
  struct NativeOperation {
    std::vector<NativeCollective> parts;
    std::vector<std::uint64_t> requests;
    int arrived = 0;
    bool given_up = false;
  };

  std::uint64_t new_slot();
  void deliver(const Message& message, const Receive& receive);
  void run_native(NativeOperation& operation);
  Mailbox& mailbox(int rank, Channel channel);

  const int size_;
  const std::size_t eager_bytes_;
  const unsigned max_late_tests_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> free_slots_;
  std::vector<Mailbox> mailboxes_;                                    // [rank][channel]
  std::vector<std::uint64_t> native_sequence_;                        // [rank][channel]
  std::map<std::pair<int, std::uint64_t>, NativeOperation> natives_;  // by (channel, sequence)
};

// What run_native serves: movement of any type, and Sum, Min, Max on the types below.
bool native_supported(Collective collective, DataType dtype, ReduceOp op);

}  // namespace mpigdr::loopback
