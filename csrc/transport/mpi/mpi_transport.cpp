// Transport over MPI: a group of ranks with its own communicators, made at once, so that no later call is
// collective. handle() lends the first to mpi4py; it carries no traffic of ours, as each channel has a
// duplicate. close() leaks them after a failure (an error or abandoned request, in any group).
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "common/rank_list.hpp"
#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/native.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

// Request::handle is the MPI_Request (an int or a pointer, by library) with its kind in the two unused top
// bits: MPI does not expose a request's kind, and only receives may be cancelled.
enum class Kind : std::uint64_t { Send = 0, Recv = 1, Native = 2 };
constexpr int kKindShift = 62;
constexpr std::uint64_t kHandleMask = (std::uint64_t{1} << kKindShift) - 1;
static_assert(sizeof(MPI_Request) <= sizeof(std::uint64_t));

Request wrap(MPI_Request request, Kind kind) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &request, sizeof request);
  MPI_GDR_CHECK((bits & ~kHandleMask) == 0);
  return {bits | static_cast<std::uint64_t>(kind) << kKindShift, true};
}

MPI_Request unwrap(const Request& request) {
  const std::uint64_t bits = request.handle & kHandleMask;
  MPI_Request mpi;
  std::memcpy(&mpi, &bits, sizeof mpi);
  return mpi;
}

Kind kind_of(const Request& request) { return static_cast<Kind>(request.handle >> kKindShift); }

const char* name(Channel channel) {
  constexpr const char* kNames[kChannelCount] = {"collective", "accelerator", "p2p"};
  return kNames[static_cast<int>(channel)];
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm group, const std::string& name_of_group, bool accelerator) : group_(group) {
    check(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
    const std::string label = "mpi-gdr group " + name_of_group;
    set_up(group_, label);
    for (Channel c : {Channel::Collective, Channel::Accelerator, Channel::PointToPoint}) {
      if (c == Channel::Accelerator && !accelerator) continue;
      MPI_Comm& comm = channels_[static_cast<int>(c)];
      check(MPI_Comm_dup(group_, &comm), "MPI_Comm_dup");
      set_up(comm, label + " " + name(c));
    }
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    max_tag_ = found ? *static_cast<int*>(value) : 32767;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return max_tag_; }
  int mpi_handle() const {
#ifdef MPI_ABI_VERSION
    return MPI_Comm_toint(group_);
#else
    return static_cast<int>(MPI_Comm_c2f(group_));
#endif
  }

  Request isend(Channel channel, const void* data, std::size_t bytes, int peer, int tag) override {
    MPI_Comm comm = checked(channel, "isend", bytes, peer, tag);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Isend");
    return wrap(request, Kind::Send);
  }

  Request irecv(Channel channel, void* data, std::size_t bytes, int peer, int tag) override {
    MPI_Comm comm = checked(channel, "irecv", bytes, peer == kAnySource ? 0 : peer, tag);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer == kAnySource ? MPI_ANY_SOURCE : peer, tag,
                    comm, &request),
          "MPI_Irecv");
    return wrap(request, Kind::Recv);
  }

  bool test(Request& request, RecvStatus* status) override {
    if (!request.active) return true;
    state_.idle.note_entry();
    const Kind kind = kind_of(request);
    MPI_Request mpi = unwrap(request);
    MPI_Status mpi_status;
    int done = 0;
    const int code = MPI_Test(&mpi, &done, &mpi_status);
    if (code != MPI_SUCCESS) {
      request.active = false;
      raise(code, kind == Kind::Recv   ? "MPI_Test of a receive"
                  : kind == Kind::Send ? "MPI_Test of a send"
                                       : "MPI_Test of a collective");
    }
    if (!done) return false;
    request.active = false;
    if (kind == Kind::Native) deliver(request);
    if (status && kind == Kind::Recv) {
      int bytes = 0;
      check(MPI_Get_count(&mpi_status, MPI_BYTE, &bytes), "MPI_Get_count");
      *status = {mpi_status.MPI_SOURCE, mpi_status.MPI_TAG, static_cast<std::size_t>(bytes)};
    }
    return true;
  }

  void abandon(Request& request) override {
    if (!request.active) return;
    request.active = false;
    network().mark_failed("messages of an operation that failed were under way");
    if (kind_of(request) != Kind::Recv) return;  // MPI cannot cancel the others: leaked
    MPI_Request mpi = unwrap(request);
    if (MPI_Cancel(&mpi) != MPI_SUCCESS) return;
    // A cancelled receive completes locally, with some fabrics only after several tests.
    for (int turn = 0, done = 0; turn < 100 && !done; ++turn)
      if (MPI_Test(&mpi, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
  }

  bool has_native(Collective collective, DataType dtype, ReduceOp op, std::uint64_t count) const override {
    return native_is_exact(collective, dtype, op, count);
  }

  Request istart_native(Channel channel, const NativeCollective& c) override {
    MPI_Comm comm = communicator(channel);
    // Our reduce_scatter allows its result inside the input; MPI does not.
    if (c.collective == Collective::ReduceScatter && overlap(c)) {
      std::vector<char> apart(c.count * item_size(c.dtype));
      Request request = wrap(start_native(c, apart.data(), rank_, comm), Kind::Native);
      deliveries_.emplace(request.handle, Delivery{std::move(apart), c.output});
      return request;
    }
    return wrap(start_native(c, c.output, rank_, comm), Kind::Native);
  }

  const char* message_path() const override { return "mpi"; }

  void close() noexcept override {
    if (group_ == MPI_COMM_NULL) return;
    const bool freeable =
        !state_.failure.load(std::memory_order_acquire) && state_.pid == ::getpid() && !mpi_is_finalized();
    for (MPI_Comm* comm : {&channels_[0], &channels_[1], &channels_[2], &group_}) {
      if (freeable && *comm != MPI_COMM_NULL) MPI_Comm_free(comm);
      *comm = MPI_COMM_NULL;
    }
  }

 private:
  struct Delivery {
    std::vector<char> data;
    void* destination = nullptr;
  };

  static void set_up(MPI_Comm comm, const std::string& label) {
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_set_name(comm, label.c_str()), "MPI_Comm_set_name");
  }

  MPI_Comm communicator(Channel channel) const {
    state_.idle.note_entry();
    MPI_Comm comm = channels_[static_cast<int>(channel)];
    if (comm == MPI_COMM_NULL)
      fail(ErrorCode::InvalidUsage, "channel '", name(channel), "' of this group ",
           group_ == MPI_COMM_NULL ? "is closed" : "was not requested when the group was created");
    return comm;
  }

  MPI_Comm checked(Channel channel, const char* operation, std::size_t bytes, int peer, int tag) const {
    check_message(*this, operation, bytes, peer, tag, ", the largest tag of this MPI library (MPI_TAG_UB)");
    return communicator(channel);
  }

  bool overlap(const NativeCollective& c) const {
    const std::size_t block = c.count * item_size(c.dtype);
    const auto in = reinterpret_cast<std::uintptr_t>(c.input),
               out = reinterpret_cast<std::uintptr_t>(c.output);
    return out < in + block * static_cast<std::size_t>(size_) && in < out + block;
  }

  void deliver(const Request& request) {
    // Requests that are complete when they start may share one handle (MPICH); then all of them are complete.
    const auto [first, last] = deliveries_.equal_range(request.handle);
    for (auto d = first; d != last; ++d)
      std::memcpy(d->second.destination, d->second.data.data(), d->second.data.size());
    deliveries_.erase(first, last);
  }

  State& state_ = state();
  MPI_Comm group_;
  MPI_Comm channels_[kChannelCount] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
  int rank_ = 0, size_ = 1, max_tag_ = 32767;
  std::unordered_multimap<std::uint64_t, Delivery> deliveries_;
};

}  // namespace

std::unique_ptr<Transport> MpiNetwork::make_group(const GroupTransportOptions& o) {
  MPI_Comm base = base_communicator();
  const std::vector<int>& world_ranks = o.ranks;
  std::vector<int> sorted(world_ranks);
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size() ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail(ErrorCode::InvalidUsage, "group of ranks ", rank_list(world_ranks),
         ": expected distinct ranks in 0..", size() - 1);
  if (!std::binary_search(sorted.begin(), sorted.end(), rank()))
    fail(ErrorCode::InvalidUsage, "rank ", rank(), " is not a member of the group of ranks ",
         rank_list(world_ranks));
  if (o.tag < 0 || o.tag > 32767) fail(ErrorCode::InvalidUsage, "group tag ", o.tag, " is not in 0..32767");

  Watchdog guard("creation of the communicators for ranks " + rank_list(world_ranks),
                 std::chrono::steady_clock::now() + o.timeout, rank());
  MPI_Group everyone = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(base, &everyone), "MPI_Comm_group");
  check(MPI_Group_incl(everyone, static_cast<int>(world_ranks.size()), world_ranks.data(), &members),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(base, members, o.tag, &comm), "MPI_Comm_create_group");
  check(MPI_Group_free(&members), "MPI_Group_free");
  check(MPI_Group_free(&everyone), "MPI_Group_free");
  return std::make_unique<MpiTransport>(comm, o.name.empty() ? std::to_string(o.tag) : o.name,
                                        o.accelerator_channel);
}

int MpiNetwork::handle(const Transport& transport) const {
  const auto* const ours = dynamic_cast<const MpiTransport*>(&transport);
  if (!ours)
    fail(ErrorCode::InvalidUsage, "the group does not run over MPI: there is no communicator to lend");
  return ours->mpi_handle();
}

}  // namespace mpi_gdr::mpi
