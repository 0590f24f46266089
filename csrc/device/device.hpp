// What the engine asks of a memory space: kernels on host memory, and for devices with streams the means to
// join a device program to a host program by flags (docs/device.md).
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
// equal a source exactly; partial overlap is not allowed. Integers wrap. NaN: Min and Max propagate NaN, as
// torch does.
struct ReduceArgs {
  DataType dtype = DataType::Float32;
  ReduceOp op = ReduceOp::Sum;  // Avg and PreMulSum add
  void* dst = nullptr;
  const void* const* sources = nullptr;
  int source_count = 0;
  std::size_t count = 0;
  double factor = 1.0;
  std::uint32_t divisor = 1;
  // Sums of floats are those of all sources, divided and rounded once, whatever their order; without a
  // factor. Only on the host.
  bool exact = false;
};
inline constexpr int kMostExactSources = 8192;

struct ResolveArgs;  // resolved.hpp
struct ResolvedReduce;

namespace host {
// Runs on the calling thread, whatever its floating-point mode; no allocation, no locks.
void reduce(const ReduceArgs& args);
}  // namespace host

// A word in memory that both host and device see; values only grow. The host side is read and written by the
// progress thread without any call into the device's runtime.
using Flag = std::atomic<std::uint64_t>;

// Counts the runs of work that is recorded once and run any number of times (a CUDA graph): the host takes no
// part in them. Runs of a group follow each other.
struct Replays {
  Flag* count = nullptr;           // in the device's memory; null: the work is not recorded
  Flag* poisoned = nullptr;        // in the device's memory: 1 once a wait was released
  const Flag* released = nullptr;  // in memory of Device::register_host(); set by the host: ends all waits
};

// An in-order queue of device work (a CUDA stream). Submission calls do not wait for what they submit. But
// the device holds so much and no more, some thousand pieces of work in CUDA: then they block until it has
// done some, and may keep other threads from calling meanwhile. So they are made by the thread that issues
// the operation, never by the progress thread.
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
  // resolved.hpp; arrays are copied by the call.
  virtual void resolve(const ResolveArgs& args) = 0;
  virtual void reduce(const ResolvedReduce& args) = 0;
  virtual void synchronize() = 0;  // blocks the host until all submitted work is done
  virtual void* native() = 0;      // what Device::adopt() takes
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<DeviceQueue> make_queue() = 0;
  // A queue that another library owns, such as the framework's current stream: `native` is the device
  // runtime's own handle (cudaStream_t), which must outlive what is returned. Cheap.
  virtual std::unique_ptr<DeviceQueue> adopt(void* native) = 0;
  // Work given to this native queue is being recorded, to be run later and any number of times (a CUDA
  // graph).
  virtual bool capturing(void* native) = 0;
  // The device is the calling thread's current one from now on, for libraries that are given its memory and
  // ask the runtime by themselves. Waits for nothing.
  virtual void enter_thread() = 0;
  // What a network card writes into the device's memory is there for work that waits for a flag raised
  // afterwards.
  virtual bool orders_remote_writes() const = 0;
  // What tells the hardware from any other, in whatever process.
  virtual std::string identity() const = 0;
  // Processes that use it take turns there, as far as it says: work of one that waits for another's takes the
  // time of its turn.
  virtual bool takes_turns() const = 0;
  // May synchronise the whole device implicitly (cudaMalloc and cudaFree do): never called on the progress
  // thread and never between posting an operation and submitting the whole of its device program.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Blocks the host until all that was submitted before, to whatever queue, is done: under the same
  // conditions.
  virtual void synchronize() = 0;
  // How another process of this node finds memory of allocate(), and the way there and back: what
  // import_memory() returns is an address of the calling process's device. Throw System where that cannot be.
  // All of them may synchronise the device.
  virtual std::string export_memory(void* memory) = 0;
  virtual void* import_memory(const std::string& ticket) = 0;
  virtual void release_imported(void* memory) = 0;
  // Host memory that processes share: whole pages, within the device's reach until unregister_host(), at the
  // same address.
  virtual void register_host(void* memory, std::size_t bytes) = 0;
  virtual void unregister_host(void* memory) = 0;
  // Zeroed, at the same address for the device; freed by the deleter.
  virtual std::shared_ptr<Flag[]> make_flags(std::size_t count) = 0;
  // later work of `after` waits for all earlier work of `before`; if that is captured, `after` is from now on
  virtual void order(DeviceQueue& before, DeviceQueue& after) = 0;
};

}  // namespace mpi_gdr
