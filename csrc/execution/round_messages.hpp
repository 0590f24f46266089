// The outstanding messages of one round of one lane, for the host and the stream execution. Used by the
// holder of the progress role only. Keeps its memory between rounds: nothing is allocated in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execution/execution.hpp"
#include "schedule/schedule.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr {

class RoundMessages {
 public:
  // Posts every Recv, then every Send of the round; slices above kMaxMessageBytes are several messages. The
  // messages of the previous round must be done. Throws what the transport throws; then call abandon().
  void post(const Schedule& schedule, const Round& round, int lane, const Binding& binding,
            Transport& transport);

  // True once all are done. Throws if a transfer failed; Mismatch if a peer sent another length.
  bool test(Transport& transport);

  bool empty() const { return pending_.empty(); }

  // Appends the peers of pending messages, maybe repeatedly.
  void pending_peers(std::vector<int>& peers) const;

  void abandon(Transport& transport) noexcept;

 private:
  enum class Kind : std::uint8_t { Send, Recv, Acknowledgement };  // the last is received for a Send
  struct Pending {
    Request request;
    int peer;
    std::size_t bytes;
    Kind kind;
  };
  std::vector<Pending> pending_;
  // Arguments of the outstanding round. acknowledge_: every message is acknowledged to its sender.
  bool acknowledge_ = false;
  Channel channel_ = Channel::Collective;
  int acknowledgement_tag_ = 0;
};

}  // namespace mpi_gdr
