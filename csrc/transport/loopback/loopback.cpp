#include "transport/loopback/loopback.hpp"

#include <utility>

#include "common/error.hpp"
#include "transport/loopback/world.hpp"

namespace mpigdr {

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

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<loopback::World> world, int rank, int size,
                    const LoopbackOptions& options)
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
    check("isend", bytes, peer, tag, false);
    return {world_->send(channel, data, bytes, rank_, peer, tag, dead()), true};
  }

  Request irecv(Channel channel, void* data, std::size_t bytes, int peer, int tag) override {
    count_call("irecv");
    check("irecv", bytes, peer, tag, true);
    return {world_->receive(channel, data, bytes, peer, rank_, tag), true};
  }

  bool test(Request& request, RecvStatus* status) override {
    faults_->pass();
    count_call("test");
    if (!request.active) return true;
    try {
      if (!world_->test(request.handle, status)) return false;
    } catch (...) {
      request.active = false;  // the handle is free: a failed request is over too
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
    return native_ && loopback::native_supported(collective, dtype, op);
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

  void check(const char* call, std::size_t bytes, int peer, int tag, bool any) const {
    if ((peer < 0 || peer >= size_) && !(any && peer == kAnySource))
      fail(ErrorCode::InvalidUsage, call, ": peer=", peer, " is not in 0..", size_ - 1);
    if (tag < 0 || tag > max_tag_)
      fail(ErrorCode::InvalidUsage, call, ": tag=", tag, " is not in 0..", max_tag_);
    if (bytes > kMaxMessageBytes)
      fail(ErrorCode::InvalidUsage, call, ": bytes=", bytes, " is more than ", kMaxMessageBytes);
  }

  const std::shared_ptr<loopback::World> world_;
  const int rank_, size_, max_tag_;
  const bool native_;
  const std::shared_ptr<LoopbackFaults> faults_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(int size, LoopbackOptions options) {
  if (size < 1) fail(ErrorCode::InvalidUsage, "size=", size, ": a group has at least one rank");
  if (!options.faults.empty() && options.faults.size() != static_cast<std::size_t>(size))
    fail(ErrorCode::InvalidUsage, "faults has ", options.faults.size(), " entries, expected 0 or ", size);
  const auto world = std::make_shared<loopback::World>(size, options);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back(std::make_unique<LoopbackTransport>(world, r, size, options));
  return ranks;
}

}  // namespace mpigdr
