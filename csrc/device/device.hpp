// The interface of a memory space: kernels on host memory; for devices with streams also the queues and flags
// that join a device program to a host program (docs/device.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/types.hpp"

namespace mpi_gdr {

// dst[i] = post(op(sources[0][i], ..., sources[k-1][i])), folded from the left, k >= 1.
// 16- and 8-bit floats are accumulated in float32 and rounded once (to nearest even; 8-bit floats that
// overflow become infinity or NaN as in torch). Sums only: `divisor` != 1 divides the result before rounding
// (integers truncate toward zero); `factor` != 1 multiplies every source first (floats and complex). dst may
// equal a source, but not overlap it partially. Integers wrap. Min and Max propagate NaN, as in torch.
struct ReduceArgs {
  DataType dtype = DataType::Float32;
  ReduceOp op = ReduceOp::Sum;  // Avg and PreMulSum add
  void* dst = nullptr;
  const void* const* sources = nullptr;
  int source_count = 0;
  std::size_t count = 0;
  double factor = 1.0;
  std::uint32_t divisor = 1;
  // The exact sum of floats, divided and rounded once, in any order of the sources. Without a factor, on the
  // host only.
  bool exact = false;
};
inline constexpr int kMostExactSources = 8192;

struct ResolveArgs;  // resolved.hpp
struct ResolvedReduce;

namespace host {
// Runs on the calling thread, whatever its floating-point mode; no allocation, no locks.
void reduce(const ReduceArgs& args);
}  // namespace host

// A word in memory that host and device see; values only grow. The host accesses it without a call of the
// device's runtime.
using Flag = std::atomic<std::uint64_t>;

// Counts the runs of recorded work (a CUDA graph), which start without the host. Runs of a group follow each
// other.
struct Replays {
  Flag* count = nullptr;           // in the device's memory; null: the work is not recorded
  Flag* poisoned = nullptr;        // in the device's memory: 1 once a wait was released
  const Flag* released = nullptr;  // in memory of Device::register_host(); set by the host: ends all waits
};

// An in-order queue of device work (a CUDA stream). A submission does not wait for its work, but blocks while
// the device's queue is full (some thousand pieces of work in CUDA), and other threads' calls with it. So the
// thread that issues the operation submits, never the progress thread.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Flags of make_flags() or in memory of register_host(). Later work waits until *flag >= at_least; a write
  // comes after all earlier work. With `replays` both may be captured, as copies and reductions may, and
  // count << 32 is added to the value when they run. Once released, such a wait ends and poisons what
  // follows; once poisoned, such a write does nothing, so that no peer consumes the data.
  virtual void wait_flag(const Flag* flag, std::uint64_t at_least, const Replays& replays = {}) = 0;
  virtual void write_flag(Flag* flag, std::uint64_t value, const Replays& replays = {}) = 0;
  virtual void count_replay(const Replays& replays) = 0;  // one more
  virtual void copy(void* dst, const void* src, std::size_t bytes) = 0;
  virtual void reduce(const ReduceArgs& args) = 0;  // sources array is copied by the call
  // resolved.hpp. Arrays are copied by the call.
  virtual void resolve(const ResolveArgs& args) = 0;
  virtual void reduce(const ResolvedReduce& args) = 0;
  virtual void synchronize() = 0;  // blocks the host until all submitted work is done
  virtual void* native() = 0;      // what Device::adopt() takes
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<DeviceQueue> make_queue() = 0;
  // A queue that another library owns, such as the framework's current stream: `native` is the runtime's
  // handle (cudaStream_t) and must outlive the result. Cheap.
  virtual std::unique_ptr<DeviceQueue> adopt(void* native) = 0;
  // Whether work of this native queue is being recorded into a graph.
  virtual bool capturing(void* native) = 0;
  // Makes the device the calling thread's current one, for libraries that get its memory and call the runtime
  // themselves. Does not block.
  virtual void enter_thread() = 0;
  // Work that waits for a flag sees what a network card wrote into the device's memory before the flag.
  virtual bool orders_remote_writes() const = 0;
  // Unique to the hardware, the same in all processes.
  virtual std::string identity() const = 0;
  // Processes take turns on the device, so that work that polls for another process costs a time slice. False
  // if unknown.
  virtual bool takes_turns() const = 0;
  // May synchronise the device (cudaMalloc and cudaFree do): not called on the progress thread, nor between
  // the posting of an operation and the end of its launch.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Blocks until all work submitted before, to any queue, is done. Restricted as allocate().
  virtual void synchronize() = 0;
  // Shares memory of allocate() with another process of this node: import_memory() returns an address for the
  // calling process's device. These throw System where that is impossible, and may synchronise the device.
  virtual std::string export_memory(void* memory) = 0;
  virtual void* import_memory(const std::string& ticket) = 0;
  virtual void release_imported(void* memory) = 0;
  // Makes whole pages of host memory accessible to the device at the same address, until unregister_host().
  // Throws System where the device has another address for them.
  virtual void register_host(void* memory, std::size_t bytes) = 0;
  virtual void unregister_host(void* memory) = 0;
  // Zeroed, at the same address for the device; freed with the result. Throws as register_host().
  virtual std::shared_ptr<Flag[]> make_flags(std::size_t count) = 0;
  // Later work of `after` waits for all earlier work of `before`. If `before` is captured, so is `after`.
  virtual void order(DeviceQueue& before, DeviceQueue& after) = 0;
};

}  // namespace mpi_gdr
