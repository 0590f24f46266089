#include "device/sim/sim_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

namespace mpigdr {

namespace {
// How often a waiting worker looks again: the host writes flags without telling anybody.
constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::size_t kPage = 4096;
}  // namespace

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
  for (auto& queue : queues_) queue->submission.notify_one();
  for (auto& queue : queues_) queue->worker.join();
  for (const auto& [memory, allocation] : allocations_) mpigdr::release(allocation.file, allocation.bytes);
  for (const auto& [memory, bytes] : imported_) ::munmap(memory, bytes);
}

std::unique_ptr<DeviceQueue> SimDevice::make_queue() {
  std::lock_guard lock(state_);
  return std::make_unique<SimQueue>(*this, next_queue_++ % options_.hardware_queues);
}

std::unique_ptr<DeviceQueue> SimDevice::adopt(void* native) {
  return std::make_unique<SimQueue>(dynamic_cast<SimQueue&>(*static_cast<DeviceQueue*>(native)));
}

bool SimDevice::capturing(void* native) {
  return dynamic_cast<SimQueue&>(*static_cast<DeviceQueue*>(native)).capturing();
}

std::string SimDevice::identity() const {
  std::ostringstream text;
  text << ::getpid() << ' ' << this;
  return text.str();
}

void* SimDevice::allocate(std::size_t bytes) {
  SimDevice::synchronize();
  const std::size_t pages = bytes / kPage + 1;
  MemoryFile made;
  try {
    made = make_memory_file(pages * kPage);
  } catch (const Error&) {
    throw NoMemory(bytes, "simulated device memory");
  }
  std::lock_guard lock(state_);
  allocations_[made.memory] = {made, pages * kPage};
  return made.memory;
}

void SimDevice::release(void* memory) {
  SimDevice::synchronize();
  std::unique_lock lock(state_);
  const auto found = allocations_.extract(memory);
  lock.unlock();
  if (!found) fail(ErrorCode::InvalidUsage, "release of ", memory, ": not from allocate()");
  mpigdr::release(found.mapped().file, found.mapped().bytes);
}

std::string SimDevice::export_memory(void* memory) {
  std::lock_guard lock(state_);
  const auto at = allocations_.find(memory);
  if (at == allocations_.end()) fail(ErrorCode::InvalidUsage, "export of ", memory, ": not from allocate()");
  return std::to_string(::getpid()) + ' ' + std::to_string(at->second.file.file) + ' ' +
         std::to_string(at->second.bytes);
}

void* SimDevice::import_memory(const std::string& ticket) {
  SimDevice::synchronize();
  std::istringstream text(ticket);
  int pid = 0, number = -1;
  std::size_t bytes = 0;
  text >> pid >> number >> bytes;
  void* const memory = map_file_of(pid, number, bytes);
  if (!memory) fail(ErrorCode::System, "no simulated device memory at /proc/", pid, "/fd/", number);
  std::lock_guard lock(state_);
  imported_[memory] = bytes;
  return memory;
}

void SimDevice::release_imported(void* memory) {
  SimDevice::synchronize();
  std::lock_guard lock(state_);
  const auto found = imported_.extract(memory);
  if (!found) fail(ErrorCode::InvalidUsage, "release of ", memory, ": not imported");
  ::munmap(memory, found.mapped());
}

std::shared_ptr<Flag[]> SimDevice::make_flags(std::size_t count) {
  SimDevice::synchronize();
  std::shared_ptr<Flag[]> flags(new Flag[count]());
  std::lock_guard lock(state_);
  flag_blocks_[flags.get()] = count;
  return flags;
}

void SimDevice::order(DeviceQueue& before, DeviceQueue& after) {
  dynamic_cast<SimQueue&>(after).wait(dynamic_cast<SimQueue&>(before).mark());
}

SimMark SimDevice::submit(int hardware_queue, Item item, std::atomic<std::uint64_t>& last) {
  const std::lock_guard submission(submission_);
  SimMark mark{this, hardware_queue};
  HardwareQueue& queue = *queues_[hardware_queue];
  {
    std::lock_guard lock(state_);
    queue.items.push_back(std::move(item));
    last = mark.number = ++queue.submitted;
  }
  queue.submission.notify_one();
  return mark;
}

void SimDevice::accept() {
  if (accepts_.load(std::memory_order_relaxed) < 0) return;
  if (accepts_.fetch_sub(1, std::memory_order_relaxed) == 0)
    fail(ErrorCode::System, "the simulated device refuses");
}

void SimDevice::synchronize(const SimMark& mark) {
  std::unique_lock lock(state_);
  const HardwareQueue& queue = *queues_[mark.hardware_queue];
  finished_.wait(lock, [&] { return queue.finished >= mark.number; });
  throw_failure_locked();
}

bool SimDevice::reached(const SimMark& mark) {
  std::lock_guard lock(state_);
  return queues_[mark.hardware_queue]->finished >= mark.number;
}

void SimDevice::synchronize() {
  std::lock_guard submission(submission_);
  std::unique_lock lock(state_);
  const auto idle = [](const auto& queue) { return queue->finished == queue->submitted; };
  finished_.wait(lock, [&] { return std::all_of(queues_.begin(), queues_.end(), idle); });
  throw_failure_locked();
}

void SimDevice::check() {
  std::lock_guard lock(state_);
  throw_failure_locked();
}

void SimDevice::work(HardwareQueue& queue) {
  std::unique_lock lock(state_);
  while (true) {
    queue.submission.wait(lock, [&] { return stopping_ || !queue.items.empty(); });
    if (queue.items.empty()) return;
    Item item = std::move(queue.items.front());
    queue.items.pop_front();
    const bool dropped = failed_;
    lock.unlock();
    if (!dropped) run(queue, item);
    item = nullptr;  // what it holds may ask the device something when it goes
    lock.lock();
    ++queue.finished;
    finished_.notify_all();
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
  } catch (const std::exception& error) {
    set_failure(ErrorCode::Internal, error.what());
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
