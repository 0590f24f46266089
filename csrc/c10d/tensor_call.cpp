#include "c10d/tensor_call.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/error.hpp"

namespace mpi_gdr::torch_binding {
namespace {

std::vector<at::Tensor> all_copyable(at::TensorList tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& t : tensors) all.push_back(copyable(t));
  return all;
}

void show(TensorShapes& shapes, at::TensorList tensors, bool flat) {
  if (tensors.empty()) return;
  if (flat) return shapes.add(c10::toString(tensors[0].scalar_type()), elements(tensors));
  for (const at::Tensor& t : tensors) {
    const at::IntArrayRef sizes = t.sizes();
    shapes.add(c10::toString(t.scalar_type()), sizes.data(), sizes.size());
  }
}

std::vector<at::Tensor> parts_of(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  std::int64_t at = 0;
  for (const at::Tensor& t : tensors) {
    parts.push_back(flat.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
  return parts;
}

}  // namespace

void TensorCall::note_device(const at::Tensor& tensor) {
  accelerator |= !tensor.is_cpu();
  const std::shared_ptr<DeviceStreams> found = devices ? devices->find(tensor.device()) : nullptr;
  if (where_ && found != streams)
    fail(ErrorCode::InvalidUsage, name, ": tensors on ", where_->str(), " and on ", tensor.device().str(),
         " in one call, expected one device");
  if (!found && !tensor.is_cpu() && !tensor.is_meta())
    warn_of_fallback(tensor.device().type(), /*sparse=*/devices == nullptr);
  where_ = tensor.device();
  streams = found;
}

bool TensorCall::usable(const at::Tensor& tensor) const {
  return (tensor.is_cpu() || streams) && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool TensorCall::adjacent(at::TensorList tensors) const {
  if (!usable(tensors[0])) return false;
  const char* next = static_cast<const char*>(tensors[0].const_data_ptr()) + tensors[0].nbytes();
  for (const at::Tensor& t : tensors.slice(1)) {
    if (!usable(t) || t.storage().data() != tensors[0].storage().data() || t.const_data_ptr() != next)
      return false;
    next += t.nbytes();
  }
  return true;
}

// With the host fallback ATen copies on the caller's stream in both directions, and waits for it.
at::Tensor TensorCall::allocate_contiguous(at::IntArrayRef sizes, const at::Tensor& like) const {
  at::TensorOptions options = like.options().memory_format(at::MemoryFormat::Contiguous);
  // Pinned: a GPU copies it directly.
  if (!streams) options = options.device(at::kCPU).pinned_memory(like.is_cuda());
  try {
    return at::empty(sizes, options);
  } catch (const c10::Error&) {  // the allocator's only error
    const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * like.element_size();
    throw NoMemory(std::string(name) + ": " +
                   NoMemory(bytes, streams ? "a contiguous copy of the tensors on their device"
                                           : "a contiguous copy of the tensors in host memory")
                       .what());
  }
}

// Host fallback: the copy back, maybe on another thread, follows the caller's work on its stream.
std::optional<c10::Stream> TensorCall::epilogue_stream(const at::Tensor& tensor) const {
  if (tensor.is_cpu() || streams) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

void TensorCall::keep(at::TensorList tensors) {
  for (const at::Tensor& t : tensors) note_device(t);
  held.append(tensors.begin(), tensors.end());
}

const void* TensorCall::readable(at::TensorList tensors) {
  keep(tensors);
  if (adjacent(tensors)) return tensors[0].const_data_ptr();
  const std::vector<at::Tensor> sources = all_copyable(tensors);
  const at::Tensor flat = held.emplace_back(allocate_contiguous({elements(sources)}, sources[0]));
  copy_data(parts_of(flat, sources), sources);
  return flat.const_data_ptr();
}

void* TensorCall::writable(at::TensorList tensors, bool keeps) {
  keep(tensors);
  if (adjacent(tensors)) return tensors[0].data_ptr();
  for (const at::Tensor& t : tensors) check_writable(t, name);
  std::vector<at::Tensor> targets = all_copyable(tensors);
  const at::Tensor flat = held.emplace_back(allocate_contiguous({elements(targets)}, targets[0]));
  if (keeps) copy_data(parts_of(flat, targets), targets);
  epilogues.push_back([targets = std::move(targets), flat, on = epilogue_stream(tensors[0])] {
    const c10::OptionalStreamGuard guard(on);
    copy_data(targets, parts_of(flat, targets));
  });
  return flat.data_ptr();
}

void TensorCall::add(const CollectiveSpec& spec, const void* input, void* output, double factor) {
  auto& call = std::get<CollectiveCall>(
      calls.emplace_back(std::in_place_type<CollectiveCall>, spec, input, output, factor));
  const FewTensors& tensors = inputs.empty() ? outputs : inputs;
  if (!reduces(spec.collective) && !tensors.empty()) {
    call.dtype = dtype_name(tensors.back().scalar_type());
    call.item_size = tensors.back().element_size();
  }
  if (reduces(spec.collective)) detail.op = mpi_gdr::name(spec.op);
  if (has_root(spec.collective)) detail.root = spec.root;
}

void TensorCall::add_message(MessageCall call, const at::Tensor& tensor) {
  note_device(tensor);
  call.bytes = tensor.nbytes();
  show(detail, tensor);
  detail.message = true;
  detail.send = call.send;
  detail.peer = call.peer;
  detail.tag = call.tag;
  // Allocating pinned memory may end the capture.
  if (streams && streams->capturing(streams->current()))
    fail(ErrorCode::InvalidUsage, name,
         ": the current stream is being captured into a graph, which cannot replay messages: the host "
         "transfers them. Call it outside of the graph");
  if (!streams || (!streams->through_host() && usable(tensor))) {
    call.data = call.send ? const_cast<void*>(readable(tensor)) : writable(tensor, false);
    calls.emplace_back(call);
    return;
  }
  held.push_back(tensor);
  if (!call.send) check_writable(tensor, name);
  const at::Tensor on_device = copyable(tensor);
  // Needed until the host's part is over; streams do not wait for that.
  auto bounce = std::make_shared<at::Tensor>(
      streams->host_memory(call.bytes).view(on_device.scalar_type()).view(on_device.sizes()));
  call.data = bounce->data_ptr();
  kept.push_back(bounce);
  constexpr bool kNonBlocking = true;
  if (call.send) {
    departures.push_back([=] { copy_data(*bounce, on_device, kNonBlocking); });
  } else if (on_device.is_contiguous()) {
    arrivals.push_back([=] { copy_data(on_device, *bounce, kNonBlocking); });
  } else {
    // A strided copy allocates memory on a stream that waits for the message: if that waits for the device,
    // and the message for a later call, both hang.
    held.push_back(allocate_contiguous(on_device.sizes(), on_device));
    arrivals.push_back([=, whole = held.back()] {
      copy_data(whole, *bounce, kNonBlocking);
      copy_data(on_device, whole, kNonBlocking);
    });
  }
  calls.emplace_back(call);
}

IssueOptions TensorCall::described() const {
  IssueOptions options;
  options.profiler_name = title;
  const bool lists = type == c10d::OpType::ALLTOALL;
  show(options.inputs, inputs, lists || type == c10d::OpType::REDUCE_SCATTER);
  show(options.outputs, outputs, lists || type == c10d::OpType::ALLGATHER);
  if (const at::Tensor* const shown = first_tensor()) {
    options.dtype = dtype_name(shown->scalar_type());
    options.item_size = shown->element_size();
  }
  return options;
}

void TensorCall::append(TensorCall other) {
  if (where_ && other.where_ && streams != other.streams)
    fail(ErrorCode::InvalidUsage, other.name, ": tensors on ", where_->str(), " and on ", other.where_->str(),
         " in one coalesced block, expected one device");
  const auto move_all = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(calls, other.calls);
  move_all(inputs, other.inputs);
  move_all(outputs, other.outputs);
  move_all(held, other.held);
  move_all(kept, other.kept);
  move_all(epilogues, other.epilogues);
  move_all(departures, other.departures);
  move_all(arrivals, other.arrivals);
  accelerator |= other.accelerator;
  if (other.where_) {
    where_ = other.where_;
    streams = std::move(other.streams);
  }
  if (detail.text.size() < 200)
    detail.text += (detail.empty() ? "" : "; ") + std::string(other.name) + ' ' + other.detail.str();
}

}  // namespace mpi_gdr::torch_binding
