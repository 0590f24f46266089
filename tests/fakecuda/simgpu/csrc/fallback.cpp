// All other operators: CPU kernels on aliases of the tensors.
//
// If torch can compute the results' shapes (meta kernels), the work is enqueued and the call returns, so that
// the device lags behind the host like a real one. Otherwise the call first waits for the stream.
#include <ATen/EmptyTensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "alias.hpp"
#include "cudart/settings.hpp"

namespace simgpu {

namespace {

using at::Tensor;
using torch::jit::Stack;

// Replaces each tensor of an argument or result by `change` of it.
template <typename Change>
void change_tensors(c10::IValue& value, Change&& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional<Tensor>(change(*tensor)) : std::nullopt);
    value = std::move(list);
  }
}

bool on_device(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice; }

void change_device(c10::IValue& value, c10::DeviceType type) {
  if (value.isDevice() && value.toDevice().type() == kDevice) value = c10::Device(type);
}

c10::Stream stream_of(Stack& arguments) {
  c10::DeviceIndex device = -1;
  for (c10::IValue& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kDevice) device = value.toDevice().index();
    change_tensors(value, [&device](const Tensor& tensor) {
      if (on_device(tensor)) device = tensor.device().index();
      return tensor;
    });
  }
  return current_stream(device);
}

void run(const c10::OperatorHandle& op, c10::DispatchKey key, Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

void run_now(const c10::OperatorHandle& op, Stack& stack, c10::Stream stream) {
  queue(stream).synchronize();
  Aliases aliases;
  for (c10::IValue& value : stack) {
    change_device(value, c10::DeviceType::CPU);
    change_tensors(value,
                   [&](const Tensor& tensor) { return on_device(tensor) ? aliases.of(tensor) : tensor; });
  }
  {
    const at::AutoDispatchBelowADInplaceOrView kernels_only;
    run(op, c10::DispatchKey::CPU, stack);
  }
  aliases.adopt_shapes(stream);
  for (c10::IValue& value : stack)
    change_tensors(value, [&](const Tensor& tensor) { return aliases.device_result(tensor, stream); });
}

// Depends on the operator only, not on its arguments. Without a meta kernel the shapes are unknown.
bool may_be_deferred(const c10::OperatorHandle& op) {
  if (!fakecuda::Settings::get().deferred || op.schema().getNamespace() != "aten") return false;
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  // Random numbers are drawn in host order.
  for (const at::Tag tag :
       {at::Tag::nondeterministic_seeded, at::Tag::data_dependent_output, at::Tag::dynamic_output_shape})
    if (op.hasTag(tag)) return false;
  const auto& arguments = op.schema().arguments();
  return std::none_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    const bool view = argument.alias_info() && !argument.alias_info()->isWrite();
    return view || argument.name() == "generator";
  });
}

// Runs an operator on zero tensors to find its results.
class Rehearsal {
 public:
  // False if it does not predict the run on the data.
  bool operator()(const c10::OperatorHandle& op, const Stack& arguments) {
    Stack stack = arguments;
    for (c10::IValue& value : stack) {
      const bool indices = value.isOptionalTensorList();
      change_device(value, c10::DeviceType::CPU);
      change_tensors(value, [&](const Tensor& tensor) { return zeros_for(tensor, indices); });
    }
    if (!possible_) return false;
    try {
      const at::AutoDispatchBelowADInplaceOrView kernels_only;
      run(op, c10::DispatchKey::CPU, stack);
    } catch (const std::exception&) {
      return false;  // unless the zeros caused it, the run on the data throws it
    }
    results = std::move(stack);
    for (const auto& [device, zeros] : pairs_)
      if (device.sizes() != zeros.sizes() || device.strides() != zeros.strides()) return false;
    for (c10::IValue& value : results) {
      if (!value.isTensor() && !value.isTensorList()) return false;
      change_tensors(value, [this](const Tensor& tensor) {
        if (tensor.defined() && !passed(tensor).defined() && shares_memory(tensor)) possible_ = false;
        return tensor;
      });
    }
    return possible_;
  }

  // The device tensor among the arguments that is this result, or undefined.
  Tensor passed(const Tensor& result) const {
    for (const auto& [device, zeros] : pairs_)
      if (zeros.is_same(result)) return device;
    return {};
  }

  Stack results;

 private:
  Tensor zeros_for(const Tensor& tensor, bool index) {
    if (!tensor.defined()) return tensor;
    // The host may change its tensors after the call: only numbers are copied. A mask determines shapes.
    if (!on_device(tensor) && tensor.dim()) possible_ = false;
    if (index && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte)) possible_ = false;
    if (!on_device(tensor) || !possible_) return tensor;
    Tensor zeros = at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    std::memset(zeros.storage().mutable_data(), 0, zeros.storage().nbytes());
    if (tensor.is_conj()) zeros._set_conj(true);
    if (tensor.is_neg()) zeros._set_neg(true);
    pairs_.emplace_back(tensor, zeros);
    return zeros;
  }

  bool shares_memory(const Tensor& result) const {
    return std::any_of(pairs_.begin(), pairs_.end(), [&result](const auto& pair) {
      return pair.second.storage().is_alias_of(result.storage());
    });
  }

  std::vector<std::pair<Tensor, Tensor>> pairs_;
  bool possible_ = true;
};

Tensor copy_of_number(const Tensor& number) {
  Tensor copy = number.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(number.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

bool run_later(const c10::OperatorHandle& op, Stack& stack, c10::Stream stream) {
  Rehearsal rehearsal;
  if (!may_be_deferred(op) || !rehearsal(op, stack)) return false;
  Aliases aliases;
  for (c10::IValue& value : stack) {
    change_device(value, c10::DeviceType::CPU);
    change_tensors(value, [&](const Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      return on_device(tensor) ? aliases.of(tensor) : copy_of_number(tensor);
    });
  }
  std::vector<Tensor> outputs;  // undefined: the kernel works in place
  for (c10::IValue& value : rehearsal.results)
    change_tensors(value, [&](const Tensor& result) {
      const Tensor passed = result.defined() ? rehearsal.passed(result) : result;
      if (!result.defined() || passed.defined()) {
        outputs.emplace_back();
        return passed;
      }
      Tensor made =
          empty_on_device(result.sizes(), result.strides(), result.scalar_type(), stream.device_index());
      outputs.push_back(alias(made));
      return made;
    });
  enqueue(stream, [op, arguments = std::move(stack), outputs = std::move(outputs)] {
    Stack stack = arguments;
    run(op, c10::DispatchKey::CPU, stack);
    auto output = outputs.begin();
    for (c10::IValue& value : stack)
      change_tensors(value, [&output](const Tensor& result) {
        if (output->defined()) output->copy_(result);
        ++output;
        return result;
      });
  });
  stack = std::move(rehearsal.results);
  return true;
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  const auto count = op.schema().arguments().size();
  Stack own(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const c10::Stream stream = stream_of(own);
  const c10::DeviceGuard guard(stream.device());
  if (!run_later(op, own, stream)) run_now(op, own, stream);
  stack->insert(stack->end(), own.begin(), own.end());
}

// torch sends convolutions of unknown devices to these two instead of the fallback.
Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                   at::IntArrayRef output_padding, int64_t groups) {
  const c10::Stream stream = current_stream(input.device().index());
  queue(stream).synchronize();
  const auto bias_alias = bias ? std::optional<Tensor>(alias(*bias)) : std::nullopt;
  return copied_to_device(at::convolution(alias(input), alias(weight), bias_alias, stride, padding, dilation,
                                          transposed, output_padding, groups),
                          stream);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& input,
                                                        const Tensor& weight, at::IntArrayRef stride,
                                                        at::IntArrayRef padding, at::IntArrayRef dilation,
                                                        bool transposed, at::IntArrayRef output_padding,
                                                        int64_t groups, std::array<bool, 3> wanted) {
  const c10::Stream stream = current_stream(input.device().index());
  queue(stream).synchronize();
  const auto bias_size = at::OptionalIntArrayRef(weight.size(transposed ? 1 : 0) * (transposed ? groups : 1));
  const auto [to_input, to_weight, to_bias] =
      at::convolution_backward(alias(gradient), alias(input), alias(weight), bias_size, stride, padding,
                               dilation, transposed, output_padding, groups, wanted);
  const auto result = [&stream](const Tensor& tensor) {
    return tensor.defined() ? copied_to_device(tensor, stream) : tensor;
  };
  return {result(to_input), result(to_weight), result(to_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// Autocast casts nothing: its header alone would double the compile time.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace simgpu
