// The kernel of a group's calls of one communicator: collectives in the order of the calls, then all Sends
// and Recvs at once. Kernels meet in the segment; those of different calls wait for each other forever.
#include <algorithm>
#include <utility>

#include "cudart/host_work.hpp"
#include "nccl/arithmetic.hpp"

namespace fakenccl {
namespace {

using Progress = fakecuda::Launch::State;

// By device: the communicator whose kernel is resident. Hostile: there is room for one.
std::array<std::atomic<Comm*>, 4096> residents;

// Takes its data in chunks. For each chunk all ranks write their slots, then all read them.
class Collective {
 public:
  Collective(Comm& comm, const Call& call, std::size_t collectives)
      : comm_(comm), call_(call), collectives_(collectives) {}

  // Whether it has ended; otherwise it waits for other ranks.
  bool advance() {
    while (true) switch (phase_) {
        case Phase::Write:
          if (at_ == call_.count) return true;
          if (at_ == 0) cell().signature = signature();
          write();
          step(Phase::Read);
          break;
        case Phase::Read:
          if (!all([&](const RankCell& other) {
                return other.steps >= cell().steps && other.signature == signature();
              }))
            return false;
          read();
          step(Phase::Next);
          break;
        case Phase::Next:
          if (!all([&](const RankCell& other) { return other.steps >= cell().steps; })) return false;
          at_ += n_;
          ++chunk_;
          phase_ = Phase::Write;
      }
  }

 private:
  enum class Phase { Write, Read, Next };

  RankCell& cell() const { return comm_.segment->rank(comm_.rank); }
  Signature signature() const {
    return {call_.kind, call_.type, call_.op, call_.root, call_.count, collectives_};
  }
  void step(Phase next) {
    ++cell().steps;
    ++comm_.moved;
    phase_ = next;
  }
  template <typename F>
  bool all(F holds) const {
    for (int rank = 0; rank < comm_.ranks; ++rank)
      if (!holds(comm_.segment->rank(rank))) return false;
    return true;
  }
  // Where the chunk begins in `rank`'s part of a buffer.
  std::size_t place(int rank = 0) const {
    return (static_cast<std::size_t>(rank) * call_.count + at_) * size_of(call_.type);
  }

  void write() {
    const auto ranks = static_cast<std::size_t>(comm_.ranks);
    const bool scatters = call_.kind == Kind::ReduceScatter;
    n_ = std::min(kSlotBytes / size_of(call_.type) / (scatters ? ranks : 1), call_.count - at_);
    if (call_.kind == Kind::Broadcast && comm_.rank != call_.root) return;
    const auto* const input = static_cast<const std::byte*>(call_.input);
    for (int rank = 0; rank < (scatters ? comm_.ranks : 1); ++rank)
      prepare(call_, comm_.ranks, comm_.segment->slot(comm_.rank) + part(rank), input + place(rank), n_);
  }

  void read() {
    Segment& segment = *comm_.segment;
    auto* const output = static_cast<std::byte*>(call_.output);
    switch (call_.kind) {
      case Kind::AllGather:
        for (int rank = 0; rank < comm_.ranks; ++rank)
          std::memcpy(output + place(rank), segment.slot(rank), part(1));
        return;
      case Kind::Broadcast:
        return static_cast<void>(std::memcpy(output + place(), segment.slot(call_.root), part(1)));
      case Kind::Reduce:
        if (comm_.rank != call_.root) return;
        [[fallthrough]];
      default:
        fold(call_, comm_.ranks, (chunk_ + 1) % comm_.ranks, output + place(),
             segment.slot(0) + (call_.kind == Kind::ReduceScatter ? part(comm_.rank) : 0), n_);
    }
  }
  // Where `rank`'s part of a slot begins.
  std::size_t part(int rank) const { return static_cast<std::size_t>(rank) * n_ * size_of(call_.type); }

  Comm& comm_;
  const Call& call_;
  const std::size_t collectives_;
  Phase phase_ = Phase::Write;
  std::size_t at_ = 0, n_ = 0;  // elements
  int chunk_ = 0;
};

// A Send or Recv.
class Transfer {
 public:
  Transfer(Comm& comm, const Call& call)
      : comm_(comm),
        call_(call),
        sends_(call.kind == Kind::Send),
        from_(sends_ ? comm.rank : call.root),
        to_(sends_ ? call.root : comm.rank),
        channel_(comm.segment->channel(from_, to_)),
        slot_(comm.segment->slot(from_, to_)),
        bytes_(call.count * size_of(call.type)) {}

  bool same_channel(const Transfer& other) const {
    return &channel_ == &other.channel_ && sends_ == other.sends_;
  }
  bool ended() const { return ended_; }
  void advance() {
    while (!ended_ && (sends_ ? send() : receive())) ++comm_.moved;
  }

 private:
  // Whether a part was moved.
  bool send() {
    if (channel_.written != channel_.read) return false;
    ended_ = begun_ && at_ == bytes_;
    if (ended_) return false;
    begun_ = true;
    const std::size_t n = std::min(kSlotBytes, bytes_ - at_);
    std::memcpy(slot_, static_cast<const std::byte*>(call_.input) + at_, n);
    channel_.bytes = bytes_;
    at_ += n;
    ++channel_.written;
    return true;
  }
  bool receive() {
    if (channel_.written == channel_.read || channel_.bytes != bytes_) return false;
    const std::size_t n = std::min(kSlotBytes, bytes_ - at_);
    std::memcpy(static_cast<std::byte*>(call_.output) + at_, slot_, n);
    at_ += n;
    ended_ = at_ == bytes_;
    ++channel_.read;
    return true;
  }

  Comm& comm_;
  const Call& call_;
  const bool sends_;
  const int from_, to_;
  Channel& channel_;
  std::byte* const slot_;
  const std::size_t bytes_;
  std::size_t at_ = 0;
  bool begun_ = false, ended_ = false;
};

class Kernel {
 public:
  Kernel(Comm& comm, const Calls& calls, std::uint64_t turn) : comm_(comm), calls_(calls), turn_(turn) {
    if (comm.gone) fault("a graph launches the kernel of a communicator that was destroyed");
    const auto collectives = std::count_if(calls.begin(), calls.end(), is_collective);
    for (const Call& call : calls_)
      if (is_collective(call))
        collectives_.emplace_back(comm, call, static_cast<std::size_t>(collectives));
      else
        transfers_.emplace_back(comm, call);
  }

  Progress step() {
    if (!resident_ && !comm_.aborted) enter();
    const std::uint64_t before = comm_.moved;
    if (!comm_.aborted && !(resident_ && advance()))
      return comm_.moved == before ? Progress::Waiting : Progress::Running;
    if (resident_) resident().store(nullptr);
    if (resident_) ++comm_.turn;
    return Progress::Ended;
  }

 private:
  std::atomic<Comm*>& resident() const { return residents[static_cast<std::size_t>(comm_.device)]; }
  void enter() {
    Comm* none = nullptr;
    resident_ = comm_.turn == turn_ && resident().compare_exchange_strong(none, &comm_);
  }
  bool advance() {
    for (const Call& call : calls_)
      if (call.spins) return false;
    for (; next_ < collectives_.size(); ++next_)
      if (!collectives_[next_].advance()) return false;
    bool ended = true;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      // Messages of a pair do not overtake each other.
      const auto earlier = [&](const Transfer& it) { return !it.ended() && it.same_channel(transfers_[i]); };
      const auto here = transfers_.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::none_of(transfers_.begin(), here, earlier)) transfers_[i].advance();
      ended = ended && transfers_[i].ended();
    }
    return ended;
  }

  Comm& comm_;
  const Calls& calls_;
  const std::uint64_t turn_;  // kernels of a communicator run in the order of their launches, graphs' too
  std::vector<Collective> collectives_;
  std::size_t next_ = 0;
  std::vector<Transfer> transfers_;
  bool resident_ = false;
};

}  // namespace
}  // namespace fakenccl

using namespace fakenccl;

Result mpi_gdr::nccl::Comm::launch(const Calls& calls) {
  const DeviceScope scope(device);
  for (const Call& call : calls)
    if (call.stream != calls.front().stream) fault("not modelled: a group with several streams");
  const auto launched = [this, shared = std::make_shared<const Calls>(calls)] {
    return [this, shared, turn = launches++, kernel = std::shared_ptr<Kernel>()]() mutable {
      if (!kernel) kernel = std::make_shared<Kernel>(*this, *shared, turn);
      return kernel->step();
    };
  };
  if (fakecuda::launch_steps(calls.front().stream, launched) != cudaSuccess) return kUnhandledCudaError;
  if (std::any_of(calls.begin(), calls.end(), [](const Call& call) { return call.spins; }))
    status = kRemoteError;
  return kSuccess;
}
