#include "device/sim/sim_device.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

namespace mpigdr {

namespace {
// How often a waiting worker looks again: the host writes flags without telling anybody.
constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::size_t kAlignment = 256;
}  // namespace

class SimQueue : public DeviceQueue {
 public:
  SimQueue(SimDevice& device, int hardware_queue) : device_(device), hardware_queue_(hardware_queue) {}

  void wait_flag(const Flag* flag, std::uint32_t at_least) override {
    SimDevice& device = device_;
    device_.submit(hardware_queue_, [&device, flag, at_least](std::string* waits_for) {
      const std::uint32_t value = flag->load(std::memory_order_acquire);
      if (value >= at_least) return true;
      if (waits_for) {
        std::ostringstream text;
        text << device.flag_name(flag) << " to reach " << at_least << ", it is " << value;
        *waits_for = text.str();
      }
      return false;
    });
  }

  void write_flag(Flag* flag, std::uint32_t value) override {
    device_.submit(hardware_queue_, [flag, value](std::string*) {
      flag->store(value, std::memory_order_release);
      return true;
    });
  }

  void copy(void* dst, const void* src, std::size_t bytes) override {
    device_.submit(hardware_queue_, [dst, src, bytes](std::string*) {
      if (bytes) std::memcpy(dst, src, bytes);
      return true;
    });
  }

  void reduce(const ReduceArgs& args) override {
    device_.submit(hardware_queue_,
                   [args, sources = std::vector<const void*>(args.sources, args.sources + args.source_count)](
                       std::string*) {
                     ReduceArgs own = args;
                     own.sources = sources.data();
                     host::reduce(own);
                     return true;
                   });
  }

  void synchronize() override { device_.synchronize(hardware_queue_); }

  int hardware_queue() const { return hardware_queue_; }

 private:
  SimDevice& device_;
  const int hardware_queue_;
};

SimDevice::SimDevice(SimOptions options) : options_(options) {
  if (options_.hardware_queues < 1)
    fail(ErrorCode::InvalidUsage, "hardware_queues=", options_.hardware_queues, ": a device has at least 1");
  for (int q = 0; q < options_.hardware_queues; ++q) {
    queues_.push_back(std::make_unique<HardwareQueue>());
    queues_.back()->random.seed(options_.seed * 1000003u + static_cast<std::uint64_t>(q));
  }
  for (auto& queue : queues_) queue->worker = std::thread([this, q = queue.get()] { work(*q); });
}

SimDevice::~SimDevice() {
  {
    std::lock_guard lock(state_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& queue : queues_) queue->worker.join();
  for (void* memory : allocations_) std::free(memory);
}

std::unique_ptr<DeviceQueue> SimDevice::make_queue() {
  std::lock_guard lock(state_);
  return std::make_unique<SimQueue>(*this, next_queue_++ % options_.hardware_queues);
}

void* SimDevice::allocate(std::size_t bytes) {
  synchronize_all();
  // Rounded up because aligned_alloc wants a multiple of the alignment.
  void* const memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (!memory) fail(ErrorCode::System, "out of memory: ", bytes, " bytes of simulated device memory");
  std::lock_guard lock(state_);
  allocations_.insert(memory);
  return memory;
}

void SimDevice::release(void* memory) {
  synchronize_all();
  {
    std::lock_guard lock(state_);
    if (!allocations_.erase(memory))
      fail(ErrorCode::InvalidUsage, "release of ", memory, ": not from allocate()");
  }
  std::free(memory);
}

std::shared_ptr<Flag[]> SimDevice::make_flags(std::size_t count) {
  std::shared_ptr<Flag[]> flags(new Flag[count]());
  std::lock_guard lock(state_);
  flag_blocks_[flags.get()] = count;
  return flags;
}

void SimDevice::order(DeviceQueue& before, DeviceQueue& after) {
  const int first = dynamic_cast<SimQueue&>(before).hardware_queue();
  const int second = dynamic_cast<SimQueue&>(after).hardware_queue();
  auto event = std::make_shared<std::atomic<bool>>(false);
  submit(first, [event](std::string*) {
    event->store(true, std::memory_order_release);
    return true;
  });
  submit(second, [event](std::string* waits_for) {
    if (event->load(std::memory_order_acquire)) return true;
    if (waits_for) *waits_for = "an event of another queue";
    return false;
  });
}

void SimDevice::submit(int hardware_queue, Item item) {
  std::lock_guard submission(submission_);
  {
    std::lock_guard lock(state_);
    HardwareQueue& queue = *queues_[hardware_queue];
    queue.items.push_back(std::move(item));
    ++queue.submitted;
  }
  changed_.notify_all();
}

void SimDevice::synchronize(int hardware_queue) {
  std::unique_lock lock(state_);
  const HardwareQueue& queue = *queues_[hardware_queue];
  const std::uint64_t goal = queue.submitted;
  changed_.wait(lock, [&] { return queue.finished >= goal; });
  throw_failure_locked();
}

void SimDevice::synchronize_all() {
  std::lock_guard submission(submission_);
  std::unique_lock lock(state_);
  for (const auto& queue : queues_) changed_.wait(lock, [&] { return queue->finished == queue->submitted; });
  throw_failure_locked();
}

void SimDevice::check() {
  std::lock_guard lock(state_);
  throw_failure_locked();
}

void SimDevice::work(HardwareQueue& queue) {
  std::unique_lock lock(state_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue.items.empty(); });
    if (queue.items.empty()) return;
    const Item item = std::move(queue.items.front());
    queue.items.pop_front();
    if (!failed_) {
      lock.unlock();
      run(queue, item);
      lock.lock();
    }
    ++queue.finished;
    changed_.notify_all();
  }
}

void SimDevice::run(HardwareQueue& queue, const Item& item) {
  if (options_.max_delay.count() > 0) {
    const auto range = static_cast<std::uint64_t>(options_.max_delay.count()) + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(queue.random() % range));
  }
  try {
    if (item(nullptr)) return;
    const auto deadline = std::chrono::steady_clock::now() + options_.deadline;
    std::string waits_for;
    while (!item(&waits_for)) {
      if (std::chrono::steady_clock::now() > deadline) {
        set_failure(ErrorCode::Timeout, "a device queue waited too long for " + waits_for);
        return;
      }
      {
        std::lock_guard lock(state_);
        if (failed_) return;
      }
      std::this_thread::sleep_for(kPollInterval);
    }
  } catch (const Error& error) {
    set_failure(error.code(), error.what());
  }
}

void SimDevice::set_failure(ErrorCode code, const std::string& text) {
  std::lock_guard lock(state_);
  if (failed_) return;  // the first failure is the cause of the others
  failed_ = true;
  failure_code_ = code;
  failure_ = text;
}

void SimDevice::throw_failure_locked() const {
  if (failed_) throw Error(failure_code_, failure_);
}

std::string SimDevice::flag_name(const Flag* flag) {
  std::lock_guard lock(state_);
  std::ostringstream text;
  auto block = flag_blocks_.upper_bound(flag);
  if (block != flag_blocks_.begin() && flag < std::prev(block)->first + std::prev(block)->second) {
    --block;
    text << "flag " << (flag - block->first) << " of a block of " << block->second;
  } else {
    text << "a flag at " << static_cast<const void*>(flag);
  }
  return text.str();
}

}  // namespace mpigdr
