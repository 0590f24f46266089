// A device of the software CUDA (tests/fakecuda/host) for one object of a test, and graphs on it. It does the
// worst that a real one may do: queues on one hardware queue block each other, work starts late, and
// allocation waits for the whole device and blocks other submissions meanwhile. Work that waits for 20 s ends
// the process.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "common/error.hpp"
#include "cudart/host_work.hpp"
#include "device/cuda/cuda_device.hpp"

namespace mpi_gdr {

class SoftwareGraph {
 public:
  explicit SoftwareGraph(cudaGraph_t graph) : graph_(graph) {
    GPU_CALL(0, GraphGetNodes, graph, nullptr, &size_);
    GPU_CALL(0, GraphInstantiate, &exec_, graph, 0);
  }
  ~SoftwareGraph() {
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  SoftwareGraph(const SoftwareGraph&) = delete;

  std::size_t size() const { return size_; }
  cudaGraphExec_t exec() const { return exec_; }

 private:
  const cudaGraph_t graph_;
  cudaGraphExec_t exec_ = nullptr;
  std::size_t size_ = 0;
};

class SoftwareDevice : public CudaDevice {
 public:
  explicit SoftwareDevice(const fakecuda::DeviceSettings& settings = {})
      : SoftwareDevice(fakecuda::add_device(settings)) {}
  ~SoftwareDevice() override { fakecuda::remove_device(index_); }

  // After this many more submissions to any queue, captures included, one throws System and submits nothing;
  // < 0: none.
  void refuse_after(int submissions) { fakecuda::refuse_after(index_, submissions); }

  void begin_capture(DeviceQueue& queue) {
    CudaDevice::enter_thread();
    GPU_CALL(index_, StreamBeginCapture, stream(queue), cudaStreamCaptureModeGlobal);
  }
  std::shared_ptr<SoftwareGraph> end_capture(DeviceQueue& queue) {
    CudaDevice::enter_thread();
    cudaGraph_t graph = nullptr;
    GPU_CALL(index_, StreamEndCapture, stream(queue), &graph);
    return std::make_shared<SoftwareGraph>(graph);
  }
  void replay(const SoftwareGraph& graph, DeviceQueue& queue) {
    CudaDevice::enter_thread();
    GPU_CALL(index_, GraphLaunch, graph.exec(), stream(queue));
  }
  bool idle(DeviceQueue& queue) {
    CudaDevice::enter_thread();
    return cudaStreamQuery(stream(queue)) == cudaSuccess;
  }

 private:
  explicit SoftwareDevice(int index) : CudaDevice(index), index_(index) {}
  static cudaStream_t stream(DeviceQueue& queue) { return static_cast<cudaStream_t>(queue.native()); }

  const int index_;
};

}  // namespace mpi_gdr
