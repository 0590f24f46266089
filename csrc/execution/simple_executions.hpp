// Executions without a schedule: one point-to-point message, or one collective of the library itself.
#pragma once

#include <vector>

#include "execution/execution.hpp"

namespace mpi_gdr {

struct MessageCall {
  bool send = true;
  void* data = nullptr;  // read only if `send`
  std::size_t bytes = 0;
  int peer = 0;  // or kAnySource, receives only
  int tag = 0;
};

class MessageExecution : public Execution {
 public:
  MessageExecution(const MessageCall& call, Transport& transport);
  bool advance() override;
  std::vector<int> pending_peers() const override { return {call_.peer}; }
  bool doorbell(Doorbell& bell) const override;
  bool uses_only_memory() const override { return transport_.messages_in_memory(); }
  void abandon() noexcept override;
  // The sender of a completed receive.
  int source() const { return source_; }

 private:
  const MessageCall call_;
  Transport& transport_;
  bool posted_ = false;
  int source_ = -1;
  struct Piece {
    Request request;
    std::size_t bytes;
  };
  std::uint64_t moved_ = 0;    // bytes of the pending pieces, at the last test
  std::vector<Piece> pieces_;  // more than one only above kMaxMessageBytes
};

class NativeExecution : public Execution {
 public:
  NativeExecution(const NativeCollective& collective, Channel channel, Transport& transport)
      : collective_(collective), channel_(channel), transport_(transport) {}
  bool advance() override;
  std::vector<int> pending_peers() const override { return {}; }  // the library does not expose them
  void abandon() noexcept override { abandon_quietly(transport_, request_); }

 private:
  const NativeCollective collective_;
  const Channel channel_;
  Transport& transport_;
  bool started_ = false;
  Request request_;
};

}  // namespace mpi_gdr
