#include "device/sim/sim_queue.hpp"

#include <atomic>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "device/located.hpp"
#include "device/sim/sim_device.hpp"

namespace mpigdr {

bool SimMark::reached() const { return !device || device->reached(*this); }

void SimMark::synchronize() const {
  if (device) device->synchronize(*this);
}

struct SimQueue::Last {
  std::atomic<std::uint64_t> number{0};
};

SimQueue::SimQueue(SimDevice& device, int hardware_queue)
    : device_(&device), hardware_queue_(hardware_queue), last_(std::make_shared<Last>()) {}

SimMark SimQueue::submit(Item item, bool shut_out) {
  return device_->submit(hardware_queue_, std::move(item), last_->number, shut_out);
}

void SimQueue::wait_flag(const Flag* flag, std::uint32_t at_least) {
  submit([device = device_, flag, at_least](std::string* waits_for) {
    const std::uint32_t value = flag->load(std::memory_order_acquire);
    if (value >= at_least) return true;
    if (waits_for) {
      std::ostringstream text;
      text << device->flag_name(flag) << " to reach " << at_least << ", it is " << value;
      *waits_for = text.str();
    }
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
    if (waits_for)
      *waits_for = "a shared flag to reach " + std::to_string(at_least) + ", it is " + std::to_string(value);
    return false;
  });
}

void SimQueue::write_flag64(Flag64* flag, std::uint64_t value) {
  enqueue([flag, value] { flag->store(value, std::memory_order_release); });
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

void SimQueue::locate(const LocateArgs& args) {
  enqueue([args] {
    for (int i = 0; i < 2 * args.ranks; ++i) {
      const Flag64& word = *args.shown[static_cast<std::size_t>(i)];
      args.table[i] = args.address(i, word.load(std::memory_order_acquire), args.bases);
    }
  });
}

void SimQueue::reduce(const LocatedReduce& args) {
  const auto count = static_cast<std::size_t>(args.reduce.source_count);
  enqueue([args, sources = std::vector<const void*>(args.reduce.sources, args.reduce.sources + count),
           located = std::vector<LocatedSource>(args.located, args.located + count)]() mutable {
    std::vector<const void*> from = sources;
    for (std::size_t k = 0; k < from.size(); ++k)
      if (located[k].entry >= 0 && args.table[located[k].entry])
        from[k] = reinterpret_cast<const void*>(args.table[located[k].entry] + located[k].offset);
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

void SimQueue::synchronize() { device_->synchronize({device_, hardware_queue_, last_->number}); }

SimMark SimQueue::enqueue(std::function<void()> work) {
  return submit([work = std::move(work)](std::string*) {
    work();
    return true;
  });
}

void SimQueue::slip_in(std::function<void()> work) {
  const auto item = [work = std::move(work)](std::string*) {
    work();
    return true;
  };
  submit(item, false);
}

SimMark SimQueue::mark(std::shared_ptr<std::chrono::steady_clock::time_point> reached_at) {
  return enqueue([reached_at = std::move(reached_at)] {
    if (reached_at) *reached_at = std::chrono::steady_clock::now();
  });
}

void SimQueue::wait(SimMark mark) {
  submit([mark](std::string* waits_for) {
    if (mark.reached()) return true;
    if (waits_for) *waits_for = "an event of another queue";
    return false;
  });
}

bool SimQueue::idle() { return device_->reached({device_, hardware_queue_, last_->number}); }

}  // namespace mpigdr
