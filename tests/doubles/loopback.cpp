#include "doubles/loopback.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "device/device.hpp"

namespace mpi_gdr {

void LoopbackFaults::release() {
  stuck_.store(false, std::memory_order_release);
  stuck_.notify_all();
}

void LoopbackFaults::pass() const {
  if (!stuck_.load(std::memory_order_acquire)) return;
  held_.fetch_add(1, std::memory_order_acq_rel);
  while (stuck_.load(std::memory_order_acquire)) stuck_.wait(true, std::memory_order_acquire);
  held_.fetch_sub(1, std::memory_order_acq_rel);
}

namespace {

// Shared by the endpoints of a loopback group: requests, unmatched messages, natives in progress.
// Thread-safe: one lock, also held for the copies.
class World {
 public:
  World(int size, const LoopbackOptions& options)
      : size_(size),
        eager_bytes_(options.eager_bytes),
        max_late_tests_(options.max_late_tests),
        random_(options.seed),
        mailboxes_(static_cast<std::size_t>(size) * kChannelCount),
        native_sequence_(static_cast<std::size_t>(size) * kChannelCount, 0) {}

  std::uint64_t send(Channel channel, const void* data, std::size_t bytes, int from, int to, int tag,
                     bool lost) {
    std::lock_guard lock(mutex_);
    const std::uint64_t handle = new_slot();
    const bool eager = bytes <= eager_bytes_;
    slots_[handle].done = eager;
    if (lost) return handle;
    Message message{from, tag, bytes, {}, data, eager ? kNone : handle};
    Mailbox& box = mailbox(to, channel);
    const auto match = std::find_if(box.posted.begin(), box.posted.end(),
                                    [&](const Receive& r) { return r.accepts(message); });
    if (match != box.posted.end()) {
      deliver(message, *match);
      box.posted.erase(match);
      return handle;
    }
    if (eager) {
      const auto* first = static_cast<const std::byte*>(data);
      if (bytes) message.buffered.assign(first, first + bytes);
      message.data = nullptr;
    }
    box.unexpected.push_back(std::move(message));
    return handle;
  }

  std::uint64_t receive(Channel channel, void* data, std::size_t bytes, int from, int to, int tag) {
    std::lock_guard lock(mutex_);
    const std::uint64_t handle = new_slot();
    const Receive receive{from, tag, bytes, data, handle};
    Mailbox& box = mailbox(to, channel);
    const auto match = std::find_if(box.unexpected.begin(), box.unexpected.end(),
                                    [&](const Message& m) { return receive.accepts(m); });
    if (match == box.unexpected.end()) {
      box.posted.push_back(receive);
      return handle;
    }
    deliver(*match, receive);
    box.unexpected.erase(match);
    return handle;
  }

  std::uint64_t native(Channel channel, int rank, const NativeCollective& collective, bool lost) {
    std::lock_guard lock(mutex_);
    const std::uint64_t handle = new_slot();
    if (lost) return handle;
    const int c = static_cast<int>(channel);
    const std::uint64_t sequence = native_sequence_[static_cast<std::size_t>(rank) * kChannelCount + c]++;
    const auto [entry, first] = natives_.try_emplace({c, sequence});
    NativeOperation& operation = entry->second;
    if (first) {
      operation.parts.resize(size_);
      operation.requests.assign(size_, kNone);
    }
    operation.parts[rank] = collective;
    operation.requests[rank] = handle;
    if (++operation.arrived < size_) return handle;
    // A rank that gave up never returns to the collective, so the others can never finish it.
    if (!operation.given_up) run_native(operation);
    natives_.erase(entry);
    return handle;
  }

  // True once done; the handle is then free. Throws the request's error.
  bool test(std::uint64_t handle, RecvStatus* status) {
    std::lock_guard lock(mutex_);
    Slot& slot = slots_[handle];
    if (!slot.done) return false;
    if (slot.late_tests > 0) {
      --slot.late_tests;
      return false;
    }
    const std::string error = std::move(slot.error);
    if (status && slot.status.source >= 0) *status = slot.status;
    free_slots_.push_back(handle);
    if (!error.empty()) throw Error(ErrorCode::System, error);
    return true;
  }

  void abandon(std::uint64_t handle) {
    std::lock_guard lock(mutex_);
    for (Mailbox& box : mailboxes_) {
      box.posted.remove_if([&](const Receive& r) { return r.receiver == handle; });
      box.unexpected.remove_if([&](const Message& m) { return m.sender == handle; });
    }
    for (auto& [key, operation] : natives_)
      if (std::find(operation.requests.begin(), operation.requests.end(), handle) != operation.requests.end())
        operation.given_up = true;
    free_slots_.push_back(handle);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

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
    std::uint64_t sender;             // request to complete on matching; kNone if none
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

  std::uint64_t new_slot() {
    std::uint64_t handle = slots_.size();
    if (free_slots_.empty()) {
      slots_.emplace_back();
    } else {
      handle = free_slots_.back();
      free_slots_.pop_back();
      slots_[handle] = Slot{};
    }
    slots_[handle].late_tests =
        max_late_tests_ ? static_cast<unsigned>(random_() % (max_late_tests_ + 1)) : 0;
    return handle;
  }

  void deliver(const Message& message, const Receive& receive) {
    Slot& slot = slots_[receive.receiver];
    slot.done = true;
    slot.status = {message.source, message.tag, message.bytes};
    if (message.bytes > receive.bytes)
      slot.error = "message truncated: " + std::to_string(message.bytes) + " bytes from rank " +
                   std::to_string(message.source) + " with tag " + std::to_string(message.tag) +
                   " do not fit a receive of " + std::to_string(receive.bytes) + " bytes";
    const std::size_t bytes = std::min(message.bytes, receive.bytes);
    if (bytes) std::memcpy(receive.data, message.bytes_at(), bytes);
    if (message.sender != kNone) slots_[message.sender].done = true;
  }

  void run_native(NativeOperation& operation) {
    const NativeCollective& lead = operation.parts[0];
    const std::size_t bytes = lead.count * item_size(lead.dtype);
    for (const NativeCollective& part : operation.parts) {
      if (part.collective == lead.collective && part.count == lead.count && part.dtype == lead.dtype &&
          part.op == lead.op && part.root == lead.root)
        continue;
      for (const std::uint64_t request : operation.requests) {
        slots_[request].done = true;
        slots_[request].error = "ranks called different native collectives";
      }
      return;
    }
    // Complete before any output is written: outputs may be inputs.
    std::vector<std::byte> result;
    const auto append = [&](const void* data) {
      const auto* first = static_cast<const std::byte*>(data);
      if (bytes) result.insert(result.end(), first, first + bytes);
    };
    switch (lead.collective) {
      case Collective::AllReduce:
        append(lead.input);
        for (int r = 1; r < size_; ++r) {
          const void* const sources[] = {result.data(), operation.parts[r].input};
          host::reduce({lead.dtype, lead.op, result.data(), sources, 2, lead.count});
        }
        break;
      case Collective::Broadcast:
        append(operation.parts[lead.root].output);
        break;
      case Collective::AllGather:
        for (const NativeCollective& part : operation.parts) append(part.input);
        break;
      default:
        break;  // Barrier moves nothing; others are refused by has_native()
    }
    for (int r = 0; r < size_; ++r) {
      if (!result.empty()) std::memcpy(operation.parts[r].output, result.data(), result.size());
      slots_[operation.requests[r]].done = true;
    }
  }

  Mailbox& mailbox(int rank, Channel channel) {
    return mailboxes_[static_cast<std::size_t>(rank) * kChannelCount + static_cast<std::size_t>(channel)];
  }

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

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<World> world, int rank, int size, const LoopbackOptions& options)
      : world_(std::move(world)),
        rank_(rank),
        size_(size),
        max_tag_(options.max_tag),
        native_(options.native),
        faults_(options.faults.empty() || !options.faults[rank] ? std::make_shared<LoopbackFaults>()
                                                                : options.faults[rank]) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return max_tag_; }

  Request isend(Channel channel, const void* data, std::size_t bytes, int peer, int tag) override {
    count_call("isend");
    check_message(*this, "isend", bytes, peer, tag);
    return {world_->send(channel, data, bytes, rank_, peer, tag, dead()), true};
  }

  Request irecv(Channel channel, void* data, std::size_t bytes, int peer, int tag) override {
    count_call("irecv");
    check_message(*this, "irecv", bytes, peer == kAnySource ? rank_ : peer, tag);
    return {world_->receive(channel, data, bytes, peer, rank_, tag), true};
  }

  bool test(Request& request, RecvStatus* status) override {
    faults_->pass();
    count_call("test");
    if (!request.active) return true;
    try {
      if (!world_->test(request.handle, status)) return false;
    } catch (...) {
      request.active = false;  // a failed request is over: its handle is free
      throw;
    }
    request.active = false;
    return true;
  }

  void abandon(Request& request) override {
    if (request.active) world_->abandon(request.handle);
    request.active = false;
  }

  bool has_native(Collective collective, DataType dtype, ReduceOp op, std::uint64_t) const override {
    switch (collective) {  // what World::run_native() does
      case Collective::Broadcast:
      case Collective::AllGather:
      case Collective::Barrier:
        return native_;
      case Collective::AllReduce:
        return native_ && (op == ReduceOp::Sum || op == ReduceOp::Min || op == ReduceOp::Max) &&
               (dtype == DataType::Float64 || dtype == DataType::Float32 || dtype == DataType::Int64);
      default:
        return false;
    }
  }

  Request istart_native(Channel channel, const NativeCollective& collective) override {
    count_call("istart_native");
    if (!has_native(collective.collective, collective.dtype, collective.op, collective.count))
      fail(ErrorCode::NotImplemented, "no native ", name(collective.collective), " of ",
           name(collective.dtype), " with op=", name(collective.op));
    if (collective.root < 0 || collective.root >= size_)
      fail(ErrorCode::InvalidUsage, "root=", collective.root, " is not in 0..", size_ - 1);
    return {world_->native(channel, rank_, collective, dead()), true};
  }

 private:
  bool dead() const { return faults_->dead.load(std::memory_order_acquire); }

  void count_call(const char* call) {
    std::int64_t left = faults_->calls_before_error.load(std::memory_order_acquire);
    while (left > 0 &&
           !faults_->calls_before_error.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) {
    }
    if (left == 0) fail(ErrorCode::System, "injected error in ", call, " on rank ", rank_);
  }

  const std::shared_ptr<World> world_;
  const int rank_, size_, max_tag_;
  const bool native_;
  const std::shared_ptr<LoopbackFaults> faults_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(int size, LoopbackOptions options) {
  if (size < 1) fail(ErrorCode::InvalidUsage, "size=", size, ": a group has at least one rank");
  if (!options.faults.empty() && options.faults.size() != static_cast<std::size_t>(size))
    fail(ErrorCode::InvalidUsage, "faults has ", options.faults.size(), " entries, expected 0 or ", size);
  const auto world = std::make_shared<World>(size, options);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back(std::make_unique<LoopbackTransport>(world, r, size, options));
  return ranks;
}

}  // namespace mpi_gdr
