#include "device/sim/sim_queue.hpp"

#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "device/resolved.hpp"
#include "device/sim/sim_device.hpp"

namespace mpigdr {
namespace {

std::uint64_t of_replay(const Replays& replays, std::uint32_t ago, std::uint32_t number) {
  return (replays.count->load(std::memory_order_relaxed) - ago) << 32 | number;
}

std::string to_reach(const std::string& flag, std::uint64_t at_least, const char* where,
                     std::uint64_t value) {
  return flag + " to reach " + std::to_string(at_least) + where + ", it is " + std::to_string(value);
}

}  // namespace

bool SimMark::reached() const {
  if (capture) fail(ErrorCode::InvalidUsage, "an event of a capture is asked whether it has been reached");
  return !device || device->reached(*this);
}

void SimMark::synchronize() const {
  if (capture) fail(ErrorCode::InvalidUsage, "the host waits for an event of a capture");
  if (device) device->synchronize(*this);
}

struct SimQueue::State {
  std::atomic<std::uint64_t> last{0};  // what the stream has submitted last
  std::mutex mutex;                    // all below; taken before SimCapture's
  std::shared_ptr<SimCapture> capture;
  std::size_t number = 0;  // of the stream, in the capture

  // Null: work runs.
  SimCapture* current_locked() {
    if (capture && capture->ended()) capture = nullptr;
    return capture.get();
  }
};

SimQueue::SimQueue(SimDevice& device, int hardware_queue)
    : device_(&device), hardware_queue_(hardware_queue), state_(std::make_shared<State>()) {}

SimMark SimQueue::submit(Item item) {
  device_->accept();
  {
    std::lock_guard lock(state_->mutex);
    if (SimCapture* const capture = state_->current_locked()) {
      capture->record(state_->number, std::move(item));
      return {device_, hardware_queue_, 0, state_->capture, capture->past(state_->number)};
    }
  }
  return device_->submit(hardware_queue_, std::move(item), state_->last);
}

void SimQueue::check_idle_may_be_asked(const char* call) {
  if (capturing()) fail(ErrorCode::InvalidUsage, call, " of a stream that is being captured");
}

void SimQueue::begin_capture() {
  std::lock_guard lock(state_->mutex);
  if (state_->current_locked()) fail(ErrorCode::InvalidUsage, "the stream is being captured already");
  state_->capture = std::make_shared<SimCapture>();
  state_->number = state_->capture->add_stream();
}

std::shared_ptr<SimGraph> SimQueue::end_capture() {
  std::lock_guard lock(state_->mutex);
  SimCapture* const capture = state_->current_locked();
  if (!capture || state_->number != 0) fail(ErrorCode::InvalidUsage, "the stream began no capture");
  return std::make_shared<SimGraph>(capture->end(), 7u + static_cast<std::uint64_t>(hardware_queue_));
}

bool SimQueue::capturing() {
  std::lock_guard lock(state_->mutex);
  return state_->current_locked() != nullptr;
}

void SimQueue::replay(SimGraph& graph) {
  if (capturing()) fail(ErrorCode::InvalidUsage, "a graph is replayed into a capture");
  for (Item& item : graph.order()) submit(std::move(item));
}

void SimQueue::wait_flag(const Flag* flag, std::uint32_t at_least) {
  submit([device = device_, flag, at_least](std::string* waits_for) {
    const std::uint32_t value = flag->load(std::memory_order_acquire);
    if (value >= at_least) return true;
    if (waits_for) *waits_for = to_reach(device->flag_name(flag), at_least, "", value);
    return false;
  });
}

void SimQueue::write_flag(Flag* flag, std::uint32_t value) {
  enqueue([flag, value] { flag->store(value, std::memory_order_release); });
}

void SimQueue::wait_flag64(const Flag64* flag, std::uint64_t at_least) {
  submit([flag, at_least](std::string* waits_for) {
    const std::uint64_t value = flag->load(std::memory_order_acquire);
    if (value >= at_least) return true;
    if (waits_for) *waits_for = to_reach("a shared flag", at_least, "", value);
    return false;
  });
}

void SimQueue::write_flag64(Flag64* flag, std::uint64_t value) {
  enqueue([flag, value] { flag->store(value, std::memory_order_release); });
}

void SimQueue::count_replay(const Replays& replays) {
  enqueue([replays] { replays.count->fetch_add(1, std::memory_order_relaxed); });
}

void SimQueue::wait_replay(const Flag64* flag, const Replays& replays, std::uint32_t ago,
                           std::uint32_t number) {
  submit([flag, replays, ago, number](std::string* waits_for) {
    const std::uint64_t at_least = of_replay(replays, ago, number),
                        value = flag->load(std::memory_order_acquire);
    if (value >= at_least) return true;
    if (replays.released->load(std::memory_order_acquire)) {
      replays.poisoned->store(1, std::memory_order_relaxed);
      return true;
    }
    if (waits_for) *waits_for = to_reach("a shared flag", at_least, " in a replay", value);
    return false;
  });
}

void SimQueue::write_replay(Flag64* flag, const Replays& replays, std::uint32_t number) {
  enqueue([flag, replays, number] {
    if (!replays.poisoned->load(std::memory_order_relaxed))
      flag->store(of_replay(replays, 0, number), std::memory_order_release);
  });
}

void SimQueue::copy(void* dst, const void* src, std::size_t bytes) {
  enqueue([dst, src, bytes] {
    if (bytes) std::memcpy(dst, src, bytes);
  });
}

void SimQueue::reduce(const ReduceArgs& args) {
  enqueue([args, sources = std::vector<const void*>(args.sources, args.sources + args.source_count)] {
    ReduceArgs own = args;
    own.sources = sources.data();
    host::reduce(own);
  });
}

void SimQueue::resolve(const ResolveArgs& args) {
  enqueue([args] {
    for (int i = 0; i < 2 * args.ranks; ++i) {
      const auto gave_up = [&](int r) {
        return args.given_up[static_cast<std::size_t>(r)]->load(std::memory_order_acquire) != 0;
      };
      const std::uint64_t word = args.shown[static_cast<std::size_t>(i)]->load(std::memory_order_acquire);
      const bool reached = !gave_up(i % args.ranks) && !gave_up(args.rank);
      args.table[i] = reached ? args.address(i, word, args.bases) : 0;
    }
  });
}

void SimQueue::reduce(const ResolvedReduce& args) {
  const auto count = static_cast<std::size_t>(args.reduce.source_count);
  enqueue([args, sources = std::vector<const void*>(args.reduce.sources, args.reduce.sources + count),
           resolved = std::vector<ResolvedSource>(args.resolved, args.resolved + count)]() mutable {
    std::vector<const void*> from = sources;
    for (std::size_t k = 0; k < from.size(); ++k)
      if (resolved[k].entry >= 0 && args.table[resolved[k].entry])
        from[k] = reinterpret_cast<const void*>(args.table[resolved[k].entry] + resolved[k].offset);
    std::vector<void*> to;
    for (int r = 0; r < args.ranks && args.to_outputs; ++r)
      if (const std::uint64_t output = args.table[args.ranks + r])
        to.push_back(reinterpret_cast<void*>(output + args.output_offset));
    if (!args.to_outputs || to.size() < static_cast<std::size_t>(args.ranks)) to.push_back(args.reduce.dst);
    ReduceArgs own = args.reduce;
    own.sources = from.data();
    own.dst = to[0];
    host::reduce(own);
    const std::size_t bytes = own.count * item_size(own.dtype);
    for (std::size_t k = 1; k < to.size(); ++k) std::memcpy(to[k], to[0], bytes);
  });
}

void SimQueue::synchronize() {
  check_idle_may_be_asked("synchronize");
  device_->synchronize({device_, hardware_queue_, state_->last});
}

SimMark SimQueue::enqueue(std::function<void()> work) {
  return submit([work = std::move(work)](std::string*) {
    work();
    return true;
  });
}

SimMark SimQueue::mark() {
  return enqueue([] {});
}

void SimQueue::wait(SimMark mark) {
  {
    std::lock_guard lock(state_->mutex);
    SimCapture* const own = state_->current_locked();
    if (mark.capture) {
      if (own && state_->capture != mark.capture)
        fail(ErrorCode::InvalidUsage, "a stream of one capture waits for an event of another");
      if (!own) {
        state_->number = mark.capture->add_stream();
        state_->capture = mark.capture;
      }
      return mark.capture->order(mark.past, state_->number);
    }
    if (own && mark.device)
      fail(ErrorCode::InvalidUsage,
           "a stream that is being captured waits for an event outside of the capture");
  }
  submit([mark](std::string* waits_for) {
    if (mark.reached()) return true;
    if (waits_for) *waits_for = "an event of another queue";
    return false;
  });
}

bool SimQueue::idle() {
  check_idle_may_be_asked("query");
  return device_->reached({device_, hardware_queue_, state_->last});
}

}  // namespace mpigdr
