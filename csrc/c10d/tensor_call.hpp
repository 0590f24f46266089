// One c10d call, translated: what the engine shall run, on which memory, and what has to be done afterwards.
//
// Tensors that the engine cannot use as they are get a stand-in: contiguous for a strided view, flat for a
// list. Results are copied back from the stand-in by an epilogue. Tensors of an accelerator stay where they
// are if something serves it (device_streams.hpp): what is copied is copied there, on its streams. On others,
// the floor, the stand-in is in host memory, and the CPU waits.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "c10d/device_streams.hpp"
#include "c10d/timeouts.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

struct TensorCall {
  // `devices`: of the group; null: tensors of accelerators take the floor.
  TensorCall(Devices* devices, const char* name, c10d::OpType type, bool async,
             std::chrono::milliseconds timeout)
      : devices(devices), name(name), type(type), async(async), timeout(bounded(timeout)) {}

  Devices* devices;
  const char* name;          // "all_reduce"
  const char* title = name;  // as torch's profiler calls it, without the backend: "_all_gather_base"
  c10d::OpType type;
  bool async;
  std::chrono::milliseconds timeout;       // kUnsetTimeout: the group's
  CallDetail detail;                       // "float32[1024] op=sum"
  std::uint64_t extensions = 0;            // TimeoutExtensions::Sum::last of what its timeout has
  bool accelerator = false;                // some tensor is not in host memory
  std::shared_ptr<DeviceStreams> streams;  // of the device that the tensors stay on; null: none

  std::vector<Call> calls;
  std::vector<at::Tensor> inputs, outputs;  // the caller's: for the profiler, result() and the Future
  std::vector<at::Tensor> held;             // all that must live until the end
  std::vector<std::shared_ptr<void>> kept;  // memory that is no tensor's, for as long
  // What follows, on the thread that ends the operation; beside `streams` on the current one, at the issue.
  std::vector<std::function<void()>> epilogues;
  // Of messages beside `streams`: copies to the host before they are sent, and from there when they are here.
  std::vector<std::function<void()>> departures, arrivals;

  // Memory for the engine that holds what a tensor holds, its own where that is possible; kept by `held`.
  // Several, of equal dtype and device: as one, in list order.
  const void* readable(at::TensorList tensors);
  // The same, whose contents reach the tensors in the end; `keeps`: it also starts with what they hold.
  // Throws if elements of a tensor share memory.
  void* writable(at::TensorList tensors, bool keeps);

  // Beside `streams` it travels by way of pinned memory. Throws while their current one is being captured.
  void add_message(MessageCall call, const at::Tensor& tensor);

  // Of the caller's, an input if there is one; null: it has none.
  const at::Tensor* first_tensor() const {
    const std::vector<at::Tensor>& some = inputs.empty() ? outputs : inputs;
    return some.empty() ? nullptr : &some[0];
  }
  // Some tensor that the engine moves is an accelerator's, whether something serves it or not.
  bool on_accelerator() const { return where_ && !where_->is_cpu(); }
  bool is_message() const { return !calls.empty() && std::holds_alternative<MessageCall>(calls.front()); }
  void add(const CollectiveSpec& spec, const void* input, void* output, double factor = 1.0);
  // Options with what the flight log and the trace show of the tensors. They are recorded as NCCL's are: the
  // list of an all_gather, reduce_scatter or all_to_all as one flat tensor.
  IssueOptions described() const;
  // Moves the calls and all they need from `other` behind ours.
  void append(TensorCall other);

 private:
  // The engine takes the tensor as it is.
  bool usable(const at::Tensor& tensor) const;
  bool adjacent(at::TensorList tensors) const;  // the same, and one behind the other
  // Notes where the tensors of this call are; throws if that is not one device.
  void note_device(const at::Tensor& tensor);
  at::Tensor stand_in(at::IntArrayRef sizes, const at::Tensor& like) const;
  void keep(at::TensorList tensors);
  std::optional<c10::Stream> epilogue_stream(const at::Tensor& tensor) const;

  std::optional<c10::Device> where_;  // the tensors' so far
};

}  // namespace mpi_gdr::torch_binding
