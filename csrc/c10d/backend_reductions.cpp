#include "c10d/backend.hpp"
#include "c10d/sparse.hpp"
#include "c10d/tensors.hpp"
#include "common/error.hpp"

namespace mpi_gdr::torch_binding {
namespace {

using c10d::OpType;

// `tensor`: as large as the result.
CollectiveSpec reducing(Collective collective, const at::Tensor& tensor, const Reduction& r, int rank,
                        int size, const char* what) {
  const auto count = static_cast<std::uint64_t>(tensor.numel());
  return {collective, rank, size, 0, count, data_type(tensor, what, r.op), r.op};
}

void add_reduce_scatter(TensorCall& call, at::Tensor& output, at::Tensor& input, const Reduction& r, int rank,
                        int size) {
  check_alike(output, input, call.name, "output", "input");
  check_numel(input, output.numel() * size, call.name, "input", "the output's, once per rank");
  const CollectiveSpec spec = reducing(Collective::ReduceScatter, output, r, rank, size, call.name);
  call.inputs.push_back(input);
  call.outputs.push_back(output);
  const auto own = -static_cast<std::int64_t>(byte_count(output)) * rank;
  const void* in = call.readable(apart(input, output, own));
  call.add(spec, in, call.writable(output, false), r.factor);
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse())
    return allreduce_sparse(tensors, opts);
  return collective("all_reduce", OpType::ALLREDUCE, opts, [&](TensorCall& call) {
    at::Tensor& tensor = only(tensors, call.name, "tensors");
    const Reduction r = reduction(opts.reduceOp, call.name);
    const CollectiveSpec spec = reducing(Collective::AllReduce, tensor, r, rank_, size_, call.name);
    show(call.detail, tensor);
    call.outputs.push_back(call.inputs.emplace_back(tensor));
    void* data = call.writable(tensor, true);
    call.add(spec, data, data, r.factor);
  });
}

MpiBackend::WorkPtr MpiBackend::allreduce_coalesced(Tensors& tensors,
                                                    const c10d::AllreduceCoalescedOptions& opts) {
  return collective("allreduce_coalesced", OpType::COALESCED, opts, [&](TensorCall& call) {
    call.title = "all_reduce_coalesced";
    const Reduction r = reduction(opts.reduceOp, call.name);
    check_coalesced(tensors, call.name, "tensors");
    for (at::Tensor& tensor : tensors) {
      const CollectiveSpec spec = reducing(Collective::AllReduce, tensor, r, rank_, size_, call.name);
      void* data = call.writable(tensor, true);
      call.add(spec, data, data, r.factor);
    }
    call.detail.tensors = tensors.size();
    call.inputs = call.outputs = tensors;
  });
}

MpiBackend::WorkPtr MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return collective("reduce", OpType::REDUCE, opts, [&](TensorCall& call) {
    at::Tensor& tensor = only(tensors, call.name, "tensors");
    const Reduction r = reduction(opts.reduceOp, call.name);
    CollectiveSpec spec = reducing(Collective::Reduce, tensor, r, rank_, size_, call.name);
    spec.root = static_cast<int>(opts.rootRank);
    show(call.detail, tensor);
    call.outputs.push_back(call.inputs.emplace_back(tensor));
    const bool root = opts.rootRank == rank_;
    void* data = root ? call.writable(tensor, true) : const_cast<void*>(call.readable(tensor));
    call.add(spec, data, root ? data : nullptr, r.factor);
  });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  return collective("reduce_scatter", OpType::REDUCE_SCATTER, opts, [&](TensorCall& call) {
    at::Tensor& output = only(outputs, call.name, "output");
    if (inputs.size() != 1)
      fail(ErrorCode::InvalidUsage, call.name, ": input_tensors holds ", inputs.size(), " lists, expected 1");
    const Reduction r = reduction(opts.reduceOp, call.name);
    CollectiveSpec spec = reducing(Collective::ReduceScatter, output, r, rank_, size_, call.name);
    set_counts(spec, inputs[0], output, Unit::Elements, call.name, "input_list", "output");
    show(call.detail, output);
    call.inputs = inputs[0];
    call.outputs.push_back(output);
    Tensors reduced = inputs[0];  // in place: `output` may be this rank's part
    if (reduced[rank_].const_data_ptr() != output.const_data_ptr())
      for (at::Tensor& t : reduced) t = apart(t, output, std::nullopt);
    const void* in = call.readable(reduced);
    call.add(spec, in, call.writable(output, false), r.factor);
  });
}

MpiBackend::WorkPtr MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  return collective("reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE, opts, [&](TensorCall& call) {
    call.title = "_reduce_scatter_base";
    const Reduction r = reduction(opts.reduceOp, call.name);
    add_reduce_scatter(call, output, input, r, rank_, size_);
    show(call.detail, output);
  });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& opts) {
  return collective("reduce_scatter_tensor_coalesced", OpType::COALESCED, opts, [&](TensorCall& call) {
    check_pairs(outputs, inputs, call.name);
    const Reduction r = reduction(opts.reduceOp, call.name);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      add_reduce_scatter(call, outputs[i], inputs[i], r, rank_, size_);
    call.detail.tensors = inputs.size();
  });
}

MpiBackend::WorkPtr MpiBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return with_torch_errors([&] {
    if (tensors.size() != 1)
      fail(ErrorCode::InvalidUsage, "all_reduce: tensors holds ", tensors.size(), " tensors, expected 1");
    return run(sparse_all_reduce(tensors[0], opts, rank_, size_));
  });
}

}  // namespace mpi_gdr::torch_binding
