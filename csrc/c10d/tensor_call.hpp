// One c10d call as calls of the engine.
//
// Tensors that the engine cannot use get a stand-in: contiguous for a view, flat for a list; an epilogue
// copies results back. On a served device (device_streams.hpp) copies run on its streams. For other
// accelerators, the host fallback, stand-ins are in host memory and the CPU waits.
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
#include "c10d/tensors.hpp"
#include "c10d/timeouts.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

struct TensorCall {
  // `devices`: the group's; null: the host fallback.
  TensorCall(Devices* devices, const char* name, c10d::OpType type, bool async,
             std::chrono::milliseconds timeout)
      : devices(devices), name(name), type(type), async(async), timeout(bounded(timeout)) {}

  Devices* devices;
  const char* name;          // "all_reduce"
  const char* title = name;  // torch's profiler's name without the backend: "_all_gather_base"
  c10d::OpType type;
  bool async;
  std::chrono::milliseconds timeout;       // kUnsetTimeout: the group's
  CallDetail detail;                       // "float32[1024] op=sum"
  std::uint64_t extensions = 0;            // TimeoutExtensions::Sum::last of `timeout`
  bool accelerator = false;                // some tensor is not in host memory
  std::shared_ptr<DeviceStreams> streams;  // of a served device; null: none

  std::vector<Call> calls;
  FewTensors inputs, outputs;               // the caller's
  FewTensors held;                          // kept until the end
  std::vector<std::shared_ptr<void>> kept;  // other memory, as long
  // Run by MpiWork::settle() on a waiter's or a completer thread; with `streams`, at the issue, on results().
  std::vector<std::function<void()>> epilogues;
  // Messages with `streams`: copies to the host before the send, and from there after the receive.
  std::vector<std::function<void()>> departures, arrivals;

  // Memory with the contents of tensors of one dtype and device, in order, their own if possible; in `held`.
  const void* readable(at::TensorList tensors);
  // Memory whose contents reach the tensors; `keeps`: starts with theirs. Throws if elements share memory.
  void* writable(at::TensorList tensors, bool keeps);

  // With `streams` it may use pinned memory. Throws while the current stream is captured.
  void add_message(MessageCall call, const at::Tensor& tensor);

  // The first input, else the first output; null: none.
  const at::Tensor* first_tensor() const {
    const FewTensors& some = inputs.empty() ? outputs : inputs;
    return some.empty() ? nullptr : &some[0];
  }
  bool on_accelerator() const { return where_ && !where_->is_cpu(); }  // an accelerator's, served or not
  bool is_message() const { return !calls.empty() && std::holds_alternative<MessageCall>(calls.front()); }
  void add(const CollectiveSpec& spec, const void* input, void* output, double factor = 1.0);
  // For flight log and trace. As NCCL's: a list of all_gather, reduce_scatter, all_to_all is one flat tensor.
  IssueOptions described() const;
  void append(TensorCall other);

 private:
  bool usable(const at::Tensor& tensor) const;  // as it is
  bool adjacent(at::TensorList tensors) const;  // usable and contiguous
  void note_device(const at::Tensor& tensor);   // throws if there are several
  at::Tensor allocate_contiguous(at::IntArrayRef sizes, const at::Tensor& like) const;
  void keep(at::TensorList tensors);
  std::optional<c10::Stream> epilogue_stream(const at::Tensor& tensor) const;

  std::optional<c10::Device> where_;  // of the tensors so far
};

}  // namespace mpi_gdr::torch_binding
