#include <mpi.h>

#include <climits>

#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "transport/mpi/raw/calls.hpp"
#include "transport/mpi/state.hpp"

namespace mpigdr::mpi {
namespace {

constexpr int kTag = 1, kReplyTag = 2;

class Turn {
 public:
  explicit Turn(const MessageTurn& t)
      : t_(t), bytes_(static_cast<int>(t.bytes)), requests_(t.incoming.size() + t.outgoing.size()) {
    if (t.bytes > INT_MAX)
      fail(ErrorCode::InvalidUsage, t.bytes, " bytes are more than an int of MPI counts");
    if (t.peer < 0 || t.peer >= size())
      fail(ErrorCode::InvalidUsage, "peer=", t.peer, ", expected a rank of 0..", size() - 1);
    if (t.ping_pong && (t.incoming.empty() || t.outgoing.empty()))
      fail(ErrorCode::InvalidUsage, "a ping-pong needs an outgoing and an incoming message");
  }

  void run() {
    if (!t_.ping_pong) return window();
    if (t_.first) send(t_.outgoing[0], bytes_, kTag);
    receive(t_.incoming[0], bytes_, kTag);
    if (!t_.first) send(t_.outgoing[0], bytes_, kTag);
  }

 private:
  void window() {
    auto next = requests_.begin();
    for (void* data : t_.incoming)
      check(MPI_Irecv(data, bytes_, MPI_BYTE, t_.peer, kTag, comm_, &*next++), "MPI_Irecv");
    for (const void* data : t_.outgoing)
      check(MPI_Isend(data, bytes_, MPI_BYTE, t_.peer, kTag, comm_, &*next++), "MPI_Isend");
    check(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
          "MPI_Waitall");
    if (!t_.reply) return;
    t_.first ? receive(answer_, sizeof answer_, kReplyTag) : send(answer_, sizeof answer_, kReplyTag);
  }

  void send(const void* data, int bytes, int tag) {
    check(MPI_Send(data, bytes, MPI_BYTE, t_.peer, tag, comm_), "MPI_Send");
  }

  void receive(void* data, int bytes, int tag) {
    check(MPI_Recv(data, bytes, MPI_BYTE, t_.peer, tag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
  }

  const MessageTurn& t_;
  const int bytes_;
  MPI_Comm comm_ = base_communicator();
  std::vector<MPI_Request> requests_;
  char answer_[4] = {};
};

}  // namespace

double RawCalls::time_messages(const MessageTurn* turn, int warmup, int iterations,
                               std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  Watchdog guard("MPI's own messages", Clock::now() + timeout, rank());
  if (turn == nullptr) {
    check(MPI_Barrier(base_communicator()), "MPI_Barrier");
    return 0;
  }
  Turn runner(*turn);
  for (int i = 0; i < warmup; ++i) runner.run();
  check(MPI_Barrier(base_communicator()), "MPI_Barrier");
  const auto begin = Clock::now();
  for (int i = 0; i < iterations; ++i) runner.run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace mpigdr::mpi
