#include "torch/job.hpp"

#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "torch/tensors.hpp"

namespace mpigdr::torch_binding {
namespace {

// On this floor any accelerator works: ATen copies to host memory, which waits for the caller's stream, and
// back on that same stream.
bool usable(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// The stream on which the operation was issued: the copy back, which another thread may make, comes behind
// all that the caller had queued there.
std::optional<c10::Stream> current_stream(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

at::TensorOptions host_options(const at::Tensor& tensor) {
  // Pinned: the copy engine of a GPU reads and writes it without another copy.
  return tensor.options()
      .device(at::kCPU)
      .pinned_memory(tensor.is_cuda())
      .memory_format(at::MemoryFormat::Contiguous);
}

// Memory of ours, which the caller did not count on.
at::Tensor host_tensor(const char* operation, at::IntArrayRef sizes, const at::Tensor& like) {
  try {
    return at::empty(sizes, host_options(like));
  } catch (const c10::Error&) {  // the allocator's; DefaultCPUAllocator throws no other
    const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * like.element_size();
    throw NoMemory(std::string(operation) + ": " +
                   NoMemory(bytes, "a contiguous copy of the tensors in host memory").what());
  }
}

at::Tensor host_like(const char* operation, const at::Tensor& tensor) {
  return host_tensor(operation, tensor.sizes(), tensor);
}

bool adjacent(const std::vector<at::Tensor>& tensors) {
  const char* next = static_cast<const char*>(tensors[0].data_ptr());
  for (const at::Tensor& t : tensors) {
    if (!usable(t) || t.storage().data() != tensors[0].storage().data() || t.data_ptr() != next) return false;
    next += t.nbytes();
  }
  return true;
}

std::int64_t total(const std::vector<at::Tensor>& tensors) {
  std::int64_t numel = 0;
  for (const at::Tensor& t : tensors) numel += t.numel();
  return numel;
}

at::Tensor flat_host(const char* operation, const std::vector<at::Tensor>& tensors) {
  return host_tensor(operation, {total(tensors)}, tensors[0]);
}

std::vector<at::Tensor> all_copyable(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& t : tensors) all.push_back(copyable(t));
  return all;
}

}  // namespace

at::Tensor Job::readable(const at::Tensor& tensor) {
  held.push_back(tensor);
  if (usable(tensor)) return tensor;
  accelerator |= !tensor.is_cpu();
  const at::Tensor source = copyable(tensor);
  at::Tensor copy = host_like(name, source);
  copy.copy_(source);
  held.push_back(copy);
  return copy;
}

at::Tensor Job::writable(const at::Tensor& tensor, bool keeps) {
  held.push_back(tensor);
  if (usable(tensor)) return tensor;
  check_writable(tensor, name);
  accelerator |= !tensor.is_cpu();
  const at::Tensor target = copyable(tensor);
  at::Tensor copy = host_like(name, target);
  if (keeps) copy.copy_(target);
  held.push_back(copy);
  epilogues.push_back([target, copy, on = current_stream(tensor)]() mutable {
    const c10::OptionalStreamGuard guard(on);
    const c10::InferenceMode mode(target.is_inference());  // which may be written to only there
    target.copy_(copy);
  });
  return copy;
}

at::Tensor Job::readable_flat(const std::vector<at::Tensor>& tensors) {
  held.insert(held.end(), tensors.begin(), tensors.end());
  if (adjacent(tensors)) return tensors[0];
  accelerator |= !tensors[0].is_cpu();
  const std::vector<at::Tensor> sources = all_copyable(tensors);
  at::Tensor flat = flat_host(name, sources);
  std::int64_t at = 0;
  for (const at::Tensor& t : sources) {
    flat.narrow(0, at, t.numel()).view(t.sizes()).copy_(t);
    at += t.numel();
  }
  held.push_back(flat);
  return flat;
}

at::Tensor Job::writable_flat(const std::vector<at::Tensor>& tensors) {
  held.insert(held.end(), tensors.begin(), tensors.end());
  if (adjacent(tensors)) return tensors[0];
  for (const at::Tensor& t : tensors) check_writable(t, name);
  accelerator |= !tensors[0].is_cpu();
  std::vector<at::Tensor> targets = all_copyable(tensors);
  at::Tensor flat = flat_host(name, targets);
  held.push_back(flat);
  epilogues.push_back([targets = std::move(targets), flat, on = current_stream(tensors[0])]() mutable {
    const c10::OptionalStreamGuard guard(on);
    std::int64_t at = 0;
    for (const at::Tensor& t : targets) {
      const c10::InferenceMode mode(t.is_inference());
      t.copy_(flat.narrow(0, at, t.numel()).view(t.sizes()));
      at += t.numel();
    }
  });
  return flat;
}

void Job::add(const CollectiveSpec& spec, const void* input, void* output, double factor) {
  CollectiveCall call;
  call.spec = spec;
  call.input = input;
  call.output = output;
  call.factor = factor;
  calls.emplace_back(std::move(call));
}

void Job::append(Job other) {
  const auto move_all = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(calls, other.calls);
  move_all(inputs, other.inputs);
  move_all(outputs, other.outputs);
  move_all(held, other.held);
  move_all(kept, other.kept);
  move_all(epilogues, other.epilogues);
  accelerator |= other.accelerator;
  if (detail.size() < 200)
    detail += (detail.empty() ? "" : "; ") + std::string(other.name) + ' ' + other.detail;
}

}  // namespace mpigdr::torch_binding
