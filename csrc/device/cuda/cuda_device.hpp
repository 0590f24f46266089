// An NVIDIA GPU as a Device: its queues are streams, its flags are in pinned host memory.
//
// Threads: thread-safe. Only enter_thread() changes the calling thread's current device.
// Errors: System with the call, the device and the runtime's text; NoMemory from allocate() and make_flags().
// After an error of the device itself (an illegal address) every later call throws it.
// Lifetime: that of the process. Queues and flags destroyed after the runtime are leaked.
#pragma once

#include <memory>
#include <mutex>

#include "device/cuda/driver.hpp"
#include "device/cuda/gpu_api.hpp"
#include "device/device.hpp"

namespace mpi_gdr {

class CudaDevice : public Device {
 public:
  // Loads all kernels; may wait for the device.
  explicit CudaDevice(int index);

  // Of the highest priority, because messages of all ranks wait for its work; not synchronised with the
  // legacy default stream.
  std::unique_ptr<DeviceQueue> make_queue() override;
  // `native`: a cudaStream_t of this device; also the legacy (null) or the per-thread default stream.
  std::unique_ptr<DeviceQueue> adopt(void* native) override;
  bool capturing(void* native) override;
  void enter_thread() override { driver_.enter_thread(); }
  bool orders_remote_writes() const override { return driver_.orders_remote_writes(); }
  std::string identity() const override;
  bool takes_turns() const override { return driver_.takes_turns(); }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  void synchronize() override;
  std::string export_memory(void* memory) override;
  void* import_memory(const std::string& ticket) override;
  void release_imported(void* memory) override;
  void register_host(void* memory, std::size_t bytes) override;
  void unregister_host(void* memory) override;
  std::shared_ptr<Flag[]> make_flags(std::size_t count) override;
  void order(DeviceQueue& before, DeviceQueue& after) override;

 private:
  friend class CudaQueue;
  // Throws System if the device has another address for this host memory.
  void expect_same_address(void* memory) const;

  const gpu::DriverDevice driver_;
  const int index_;
  unsigned most_blocks_ = 1;
  int priority_ = 0;

  std::mutex order_;  // between the record and the wait
  gpu::Event event_ = nullptr;
};

}  // namespace mpi_gdr
