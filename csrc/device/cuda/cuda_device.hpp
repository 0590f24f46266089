// A GPU of NVIDIA as a Device: its queues are streams, its flags lie in pinned host memory.
//
// Threads: every call is thread-safe. The calling thread's current device is the same afterwards.
// Errors: Error(System) that names the call, the device and the runtime's text; NoMemory from allocate and
// make_flags. An error of the device itself (an illegal address) comes back from every later call.
// Lifetime: as long as the process; queues and flags that are dropped later than the runtime are leaked.
#pragma once

#include <memory>
#include <mutex>

#include "device/cuda/driver.hpp"
#include "device/cuda/gpu_api.hpp"
#include "device/device.hpp"

namespace mpi_gdr {

class CudaDevice : public Device {
 public:
  // Loads all kernels, which may wait for the device.
  explicit CudaDevice(int index);

  // Of the highest priority, and apart from the legacy default stream: messages of all ranks wait for its
  // work.
  std::unique_ptr<DeviceQueue> make_queue() override;
  // `native`: a cudaStream_t of this device, the legacy default stream (null) and the thread's included.
  std::unique_ptr<DeviceQueue> adopt(void* native) override;
  bool capturing(void* native) override;
  void enter_thread() override;
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
  // Refuses host memory that the device sees at another address.
  void expect_same_address(void* memory) const;

  const gpu::DriverDevice driver_;
  const int index_;
  unsigned most_blocks_ = 1;
  int priority_ = 0;

  std::mutex order_;  // between the record and the wait
  gpu::Event event_ = nullptr;
};

}  // namespace mpi_gdr
