#include <mpi.h>

#include <chrono>
#include <climits>
#include <cstring>

#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "transport/mpi/native.hpp"
#include "transport/mpi/raw/raw_mpi.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

bool typed(const RawCall& call) { return call.collective && reduces(*call.collective); }

// Adds MPICH's extensions for sums of short floats, whose handles are valid in the library of the headers
// only. Its bfloat16 ends the process with any other operation.
MPI_Datatype raw_datatype(DataType t, ReduceOp op) {
#if defined(MPICH_VERSION) && defined(MPIX_BFLOAT16) && defined(MPIX_C_FLOAT16)
  static const bool same_library =
      library_version().starts_with("MPICH Version:") && library_version().ends_with(" " MPICH_VERSION);
  if (same_library && op == ReduceOp::Sum && t == DataType::BFloat16) return MPIX_BFLOAT16;
  if (same_library && op == ReduceOp::Sum && t == DataType::Float16) return MPIX_C_FLOAT16;
#endif
  return mpi_datatype(t);
}

struct Bound {
  const RawCall& call;
  MPI_Comm comm;
  int rank, size, count;
  MPI_Datatype type;
  MPI_Op op;

  int run() const {
    void *in = call.input, *out = call.output;
    const void* send = call.in_place ? MPI_IN_PLACE : in;
    const bool root = rank == call.root;
    if (!call.collective)
      return MPI_Sendrecv(in, count, type, (rank + 1) % size, 0, out, count, type, (rank + size - 1) % size,
                          0, comm, MPI_STATUS_IGNORE);
    switch (*call.collective) {
      case Collective::AllReduce:
        return MPI_Allreduce(send, out, count, type, op, comm);
      case Collective::Broadcast:
        return MPI_Bcast(out, count, type, call.root, comm);
      case Collective::Reduce:
        return MPI_Reduce(root ? send : in, root ? out : nullptr, count, type, op, call.root, comm);
      case Collective::AllGather:
        return MPI_Allgather(send, count, type, out, count, type, comm);
      case Collective::ReduceScatter:
        return MPI_Reduce_scatter_block(send, out, count, type, op, comm);
      case Collective::AllToAll:
        return MPI_Alltoall(send, count, type, out, count, type, comm);
      case Collective::Gather:
        return MPI_Gather(root ? send : in, count, type, root ? out : nullptr, count, type, call.root, comm);
      case Collective::Scatter:
        return MPI_Scatter(root ? in : nullptr, count, type, root && call.in_place ? MPI_IN_PLACE : out,
                           count, type, call.root, comm);
      case Collective::Barrier:
        return MPI_Barrier(comm);
      default:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
  }
};

std::string unsupported_reason(const RawCall& call) {
  if (typed(call) && raw_datatype(call.dtype, call.op) == MPI_DATATYPE_NULL)
    return "MPI has no " + std::string(name(call.op)) + " of " + std::string(name(call.dtype));
  if (typed(call) && mpi_operation(call.op, call.dtype) == MPI_OP_NULL)
    return "MPI has no operation for " + std::string(name(call.op));
  if (call.count > INT_MAX / (typed(call) ? 1 : item_size(call.dtype)))
    return std::to_string(call.count) + " elements exceed the int of MPI's counts";
  return "";
}

Bound bind(const RawCall& call) {
  if (const std::string text = unsupported_reason(call); !text.empty()) fail(ErrorCode::InvalidUsage, text);
  const auto count = static_cast<int>(typed(call) ? call.count : call.count * item_size(call.dtype));
  return {call,
          base_communicator(),
          rank(),
          size(),
          count,
          typed(call) ? raw_datatype(call.dtype, call.op) : MPI_BYTE,
          typed(call) ? mpi_operation(call.op, call.dtype) : MPI_OP_NULL};
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kSetUpTimeout(5);  // for untimed calls

constexpr int kTag = 1, kReplyTag = 2;

class Turn {
 public:
  explicit Turn(const MessageTurn& t)
      : t_(t), bytes_(static_cast<int>(t.bytes)), requests_(t.incoming.size() + t.outgoing.size()) {
    if (t.bytes > INT_MAX) fail(ErrorCode::InvalidUsage, t.bytes, " bytes exceed the int of MPI's counts");
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

class RawCalls final : public RawMpi {
 public:
  std::string explain_unsupported(const RawCall& call) override { return unsupported_reason(call); }

  std::vector<double> time_call(const RawCall& call, const RawTiming& timing) override {
    const Bound bound = bind(call);
    const std::string name = call.collective ? std::string(mpi_gdr::name(*call.collective)) : "sendrecv";
    const char* const what = name.c_str();
    Watchdog guard("MPI's own " + name, Clock::now() + timing.timeout, rank());
    for (int i = 0; i < timing.warmup; ++i) check(bound.run(), what);
    check(MPI_Barrier(bound.comm), "MPI_Barrier");
    std::vector<double> samples(static_cast<std::size_t>(timing.iterations));
    auto begin = Clock::now();
    for (double& sample : samples) {
      if (timing.rewrite) {
        if (timing.bytes) std::memcpy(timing.to, timing.fresh, timing.bytes);
        check(MPI_Barrier(bound.comm), "MPI_Barrier");
        begin = Clock::now();
      }
      check(bound.run(), what);
      const auto end = Clock::now();
      sample = std::chrono::duration<double, std::micro>(end - begin).count();
      begin = end;
    }
    return samples;
  }

  std::vector<double> all_gather(const std::vector<double>& mine) override {
    std::vector<double> all(mine.size() * static_cast<std::size_t>(size()));
    const auto count = static_cast<int>(mine.size());
    Watchdog guard("MPI_Allgather of the results", Clock::now() + kSetUpTimeout, rank());
    check(MPI_Allgather(mine.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, base_communicator()),
          "MPI_Allgather");
    return all;
  }

  void barrier() override {
    Watchdog guard("MPI_Barrier", Clock::now() + kSetUpTimeout, rank());
    check(MPI_Barrier(base_communicator()), "MPI_Barrier");
  }

  void start_all_reduce(void* buffer, std::uint64_t count, DataType dtype, ReduceOp op) override {
    if (outstanding_ != MPI_REQUEST_NULL)
      fail(
          ErrorCode::InvalidUsage,
          "start_all_reduce: the previous one has not completed; call test_all_reduce until it returns true");
    const RawCall call{Collective::AllReduce, true, buffer, buffer, count, dtype, op, 0};
    const Bound bound = bind(call);
    check(MPI_Iallreduce(MPI_IN_PLACE, buffer, bound.count, bound.type, bound.op, bound.comm, &outstanding_),
          "MPI_Iallreduce");
  }

  bool test_all_reduce() override {
    int done = 0;
    check(MPI_Test(&outstanding_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

  double time_messages(const MessageTurn* turn, int warmup, int iterations,
                       std::chrono::milliseconds timeout) override {
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

 private:
  MPI_Request outstanding_ = MPI_REQUEST_NULL;
};

extern "C" __attribute__((visibility("default"))) RawMpi* mpi_gdr_raw_mpi() {
  static RawCalls calls;
  return &calls;
}

}  // namespace mpi_gdr::mpi
