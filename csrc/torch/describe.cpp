#include "torch/describe.hpp"

#include "torch/tensors.hpp"

namespace mpigdr::torch_binding {
namespace {

void add(TensorShapes& shapes, const std::vector<at::Tensor>& tensors, bool flat) {
  if (tensors.empty()) return;
  if (flat) {
    std::int64_t elements = 0;
    for (const at::Tensor& t : tensors) elements += t.numel();
    shapes.add(c10::toString(tensors[0].scalar_type()), elements);
    return;
  }
  for (const at::Tensor& t : tensors) {
    const at::IntArrayRef sizes = t.sizes();
    shapes.add(c10::toString(t.scalar_type()), sizes.data(), sizes.size());
  }
}

}  // namespace

IssueOptions describe_tensors(const TensorCall& call) {
  IssueOptions options;
  const std::string_view title = call.title;
  options.profiler_name = title.substr(title.find(':') + 1);
  const bool lists = call.type == c10d::OpType::ALLTOALL;
  add(options.inputs, call.inputs, lists || call.type == c10d::OpType::REDUCE_SCATTER);
  add(options.outputs, call.outputs, lists || call.type == c10d::OpType::ALLGATHER);
  const std::vector<at::Tensor>& shown = call.inputs.empty() ? call.outputs : call.inputs;
  if (!shown.empty()) {
    options.dtype = dtype_name(shown[0].scalar_type());
    options.item_size = shown[0].element_size();
  }
  return options;
}

}  // namespace mpigdr::torch_binding
