// DeviceQueue on a CUDA stream.
#pragma once

#include "device/cuda/cuda_device.hpp"

namespace mpi_gdr {

// The device must outlive it. Errors and threads: cuda_device.hpp.
class CudaQueue : public DeviceQueue {
 public:
  // `owned`: the destructor destroys the stream, which does not wait for its work.
  CudaQueue(CudaDevice& device, gpu::Stream stream, bool owned)
      : device_(device), stream_(stream), owned_(owned) {}
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  // Use the driver's stream memory operations. Use a kernel if the driver has none, and for replays: a graph
  // records the operations with constant values.
  void wait_flag(const Flag* flag, std::uint64_t at_least, const Replays& replays) override;
  void write_flag(Flag* flag, std::uint64_t value, const Replays& replays) override;
  void count_replay(const Replays& replays) override;
  void copy(void* dst, const void* src, std::size_t bytes) override;
  // Throws InvalidUsage for more than 480 sources, and for addresses that are not aligned to the element type
  // (complex: to its component type).
  void reduce(const ReduceArgs& args) override;
  void resolve(const ResolveArgs& args) override;
  void reduce(const ResolvedReduce& args) override;
  void synchronize() override;
  void* native() override { return stream_; }

  gpu::Stream stream() const { return stream_; }

 private:
  CudaDevice& device_;
  const gpu::Stream stream_;
  const bool owned_;
};

}  // namespace mpi_gdr
