// A device made of host memory and threads, to prove device programs without a GPU. It is as unhelpful as a
// real one may be: queues that share a hardware FIFO block each other, work starts late, and allocate/release
// wait for the whole device and shut out every other submission meanwhile, as cudaMalloc and cudaFree may.
//
// Threads: every call is thread-safe. Each hardware queue has a worker thread that runs one item at a time.
// Errors: an item that waits longer than SimOptions::deadline fails the device; so does one that throws.
// From then on all work is dropped, and check(), synchronize() and allocate() throw what happened.
// Lifetime: DeviceQueues must not outlive their SimDevice; memory and flags must outlive the work that uses
// them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/error.hpp"
#include "common/memory_file.hpp"
#include "device/device.hpp"
#include "device/sim/sim_queue.hpp"

namespace mpigdr {

struct SimOptions {
  // 1: all DeviceQueues share one FIFO (CUDA_DEVICE_MAX_CONNECTIONS=1); n: they are dealt round robin.
  int hardware_queues = 1;
  // Each item starts after a random delay of 0..max_delay.
  std::chrono::microseconds max_delay{0};
  std::uint64_t seed = 1;
  std::chrono::milliseconds deadline{20000};
};

class SimDevice : public Device {
 public:
  explicit SimDevice(SimOptions options = {});
  // Runs what was submitted, then ends the workers.
  ~SimDevice() override;

  std::unique_ptr<DeviceQueue> make_queue() override;
  // `native`: a DeviceQueue of this device.
  std::unique_ptr<DeviceQueue> adopt(void* native) override;
  bool capturing(void* native) override;
  void enter_thread() override {}
  bool orders_remote_writes() const override { return true; }
  std::string identity() const override;
  bool takes_turns() const override { return false; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  // Other threads cannot submit meanwhile.
  void synchronize() override;
  // Memory is in files, so that other processes can map it.
  std::string export_memory(void* memory) override;
  void* import_memory(const std::string& ticket) override;
  void release_imported(void* memory) override;
  void register_host(void*, std::size_t) override {}
  void unregister_host(void*) override {}
  std::shared_ptr<Flag[]> make_flags(std::size_t count) override;
  void order(DeviceQueue& before, DeviceQueue& after) override;

  // Throws mpigdr::Error if the device has failed.
  void check();
  // After so many more submissions to whatever queue, to a capture as well, one throws System and submits
  // nothing; < 0: none.
  void refuse_after(int submissions) { accepts_.store(submissions, std::memory_order_relaxed); }

 private:
  friend class SimQueue;
  friend struct SimMark;
  using Item = SimCapture::Item;

  struct HardwareQueue {
    std::deque<Item> items;
    std::uint64_t submitted = 0, finished = 0;
    std::condition_variable submission;  // its worker waits for one
    std::mt19937_64 random;
    std::thread worker;
  };

  // `last`: becomes the number of the item before anybody else can submit.
  SimMark submit(int hardware_queue, Item item, std::atomic<std::uint64_t>& last);
  void accept();  // throws if this submission is to be refused
  void synchronize(const SimMark& mark);
  bool reached(const SimMark& mark);
  void work(HardwareQueue& queue);
  void run(HardwareQueue& queue, const Item& item);
  void set_failure(ErrorCode code, const std::string& text);
  void throw_failure_locked() const;
  std::string flag_name(const Flag* flag);

  const SimOptions options_;
  std::atomic<int> accepts_{-1};  // submissions before one is refused; < 0: no end of them
  std::mutex submission_;         // held by every submission, and by a thread that waits for the whole device
  std::mutex state_;              // guards everything below; taken after submission_
  std::condition_variable finished_;  // synchronize() waits for items that are
  std::vector<std::unique_ptr<HardwareQueue>> queues_;
  struct Allocation {
    MemoryFile file;
    std::size_t bytes = 0;
  };
  std::map<void*, Allocation> allocations_;
  std::map<void*, std::size_t> imported_;
  std::map<const Flag*, std::size_t> flag_blocks_;  // first flag of a block -> count
  int next_queue_ = 0;
  bool stopping_ = false;
  bool failed_ = false;
  ErrorCode failure_code_ = ErrorCode::Internal;
  std::string failure_;
};

}  // namespace mpigdr
