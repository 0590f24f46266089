// The messages of one round of one lane, in flight: posted together, tested together. Shared by the host and
// the stream execution. Used by the holder of the progress role only. Keeps its memory from round to round,
// so that nothing is allocated in steady state.
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
  // Posts every Recv, then every Send of the round; slices above kMaxMessageBytes travel as several messages.
  // The messages of the round before must be done. Throws what the transport throws; abandon() then cleans
  // up.
  void post(const Schedule& schedule, const Round& round, int lane, const Binding& binding,
            Transport& transport);

  // True once all are done. Throws if a transfer failed, or if a peer sent less than the schedule says: then
  // the ranks do not agree on the operation.
  bool test(Transport& transport);

  bool empty() const { return pending_.empty(); }

  // Appends the peers of unfinished messages; repeats are possible.
  void pending_peers(std::vector<int>& peers) const;

  void abandon(Transport& transport) noexcept;

 private:
  enum class Kind : std::uint8_t { Send, Recv, Acknowledgement };  // the last: of a send of ours, received
  struct Pending {
    Request request;
    int peer;
    std::size_t bytes;
    Kind kind;
  };
  std::vector<Pending> pending_;
  // Of the round in flight: what is received is acknowledged to its sender.
  bool acknowledge_ = false;
  Channel channel_ = Channel::Collective;
  int acknowledgement_tag_ = 0;
};

}  // namespace mpi_gdr
