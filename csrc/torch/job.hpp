// One c10d call, translated: what the engine shall run, on which memory, and what has to be done afterwards.
//
// Tensors that the engine cannot use as they are get a stand-in: contiguous for a strided view, flat for a
// list, host memory for an accelerator's tensor. Results are copied back from the stand-in by an epilogue.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "engine/group.hpp"

namespace mpigdr::torch_binding {

struct Job {
  Job(const char* name, const char* title, c10d::OpType type, bool async, std::chrono::milliseconds timeout)
      : name(name), title(title), type(type), async(async), timeout(timeout) {}

  const char* name;   // "all_reduce"
  const char* title;  // "mpi-gdr:all_reduce", for the profiler
  c10d::OpType type;
  bool async;
  std::chrono::milliseconds timeout;  // kUnsetTimeout: the group's
  std::string detail;                 // "float32[1024] op=sum"
  bool accelerator = false;           // some tensor is not in host memory

  std::vector<Call> calls;
  std::vector<at::Tensor> inputs, outputs;  // the caller's: for the profiler, result() and the Future
  std::vector<at::Tensor> held;             // all that must live until the end
  std::vector<std::shared_ptr<void>> kept;  // memory that is no tensor's, for as long
  std::vector<std::function<void()>> epilogues;

  // Host memory that holds what `tensor` holds. The tensor itself where that is possible.
  at::Tensor readable(const at::Tensor& tensor);
  // Host memory whose contents reach `tensor` in the end; `keeps`: it also starts with what the tensor holds.
  // Throws if elements of the tensor share memory.
  at::Tensor writable(const at::Tensor& tensor, bool keeps);
  // The same for lists, as one flat tensor in list order. All of equal dtype and device.
  at::Tensor readable_flat(const std::vector<at::Tensor>& tensors);
  at::Tensor writable_flat(const std::vector<at::Tensor>& tensors);

  bool is_message() const { return !calls.empty() && std::holds_alternative<MessageCall>(calls.front()); }
  void add(const CollectiveSpec& spec, const void* input, void* output, double factor = 1.0);
  // Moves the calls and all they need from `other` behind ours.
  void append(Job other);
};

}  // namespace mpigdr::torch_binding
