// The collectives that reduce.
#include "common/error.hpp"
#include "torch/backend.hpp"
#include "torch/errors.hpp"
#include "torch/sparse.hpp"
#include "torch/tensors.hpp"

namespace mpigdr::torch_binding {
namespace {

using c10d::OpType;

void add_reduce_scatter(TensorCall& call, at::Tensor& output, at::Tensor& input, const Reduction& r, int rank,
                        int size, const char* what) {
  check_strided(output, what, "output");
  check_strided(input, what, "input");
  check_same_dtype(output, input, what, "output", "input");
  check_numel(input, output.numel() * size, what, "input", "the output's, once per rank");
  CollectiveSpec spec{Collective::ReduceScatter, rank, size};
  spec.count = output.numel();
  spec.dtype = data_type(output, what, r.op);
  spec.op = r.op;
  call.inputs.push_back(input);
  call.outputs.push_back(output);
  const auto own = -static_cast<std::int64_t>(byte_count(output)) * rank;
  const void* in = call.readable(apart(input, output, own)).const_data_ptr();
  call.add(spec, in, call.writable(output, false).data_ptr(), r.factor);
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "all_reduce";
    if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse())
      return run(sparse_all_reduce(tensors[0], opts, rank_, size_));
    TensorCall call(&devices_, what, "mpi-gdr:all_reduce", OpType::ALLREDUCE, opts.asyncOp, opts.timeout);
    at::Tensor& tensor = only(tensors, what, "tensors");
    const Reduction r = reduction(opts.reduceOp, what);
    CollectiveSpec spec{Collective::AllReduce, rank_, size_};
    spec.count = tensor.numel();
    spec.dtype = data_type(tensor, what, r.op);
    spec.op = r.op;
    show(call.detail, tensor);
    call.inputs = call.outputs = {tensor};
    void* data = call.writable(tensor, true).data_ptr();
    call.add(spec, data, data, r.factor);
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::allreduce_coalesced(Tensors& tensors,
                                                    const c10d::AllreduceCoalescedOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "allreduce_coalesced";
    TensorCall call(&devices_, what, "mpi-gdr:all_reduce_coalesced", OpType::COALESCED, opts.asyncOp,
                    opts.timeout);
    const Reduction r = reduction(opts.reduceOp, what);
    check_not_empty(tensors, what, "tensors");
    for (at::Tensor& tensor : tensors) {
      check_strided(tensor, what, "tensors");
      check_same_device(tensor, tensors[0], what, "tensors");
      CollectiveSpec spec{Collective::AllReduce, rank_, size_};
      spec.count = tensor.numel();
      spec.dtype = data_type(tensor, what, r.op);
      spec.op = r.op;
      void* data = call.writable(tensor, true).data_ptr();
      call.add(spec, data, data, r.factor);
    }
    call.detail.tensors = tensors.size();
    call.inputs = call.outputs = tensors;
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "reduce";
    TensorCall call(&devices_, what, "mpi-gdr:reduce", OpType::REDUCE, opts.asyncOp, opts.timeout);
    at::Tensor& tensor = only(tensors, what, "tensors");
    const Reduction r = reduction(opts.reduceOp, what);
    CollectiveSpec spec{Collective::Reduce, rank_, size_, static_cast<int>(opts.rootRank)};
    spec.count = tensor.numel();
    spec.dtype = data_type(tensor, what, r.op);
    spec.op = r.op;
    show(call.detail, tensor);
    call.inputs = call.outputs = {tensor};
    const bool root = opts.rootRank == rank_;
    void* data = (root ? call.writable(tensor, true) : call.readable(tensor)).data_ptr();
    call.add(spec, data, root ? data : nullptr, r.factor);
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "reduce_scatter";
    TensorCall call(&devices_, what, "mpi-gdr:reduce_scatter", OpType::REDUCE_SCATTER, opts.asyncOp,
                    opts.timeout);
    at::Tensor& output = only(outputs, what, "output");
    if (inputs.size() != 1)
      fail(ErrorCode::InvalidUsage, what, ": input_tensors holds ", inputs.size(), " lists, expected 1");
    const Reduction r = reduction(opts.reduceOp, what);
    CollectiveSpec spec{Collective::ReduceScatter, rank_, size_};
    set_counts(spec, inputs[0], output, Unit::Elements, what, "input_list", "output");
    spec.dtype = data_type(output, what, r.op);
    spec.op = r.op;
    show(call.detail, output);
    call.inputs = inputs[0];
    call.outputs = {output};
    Tensors reduced = inputs[0];  // in place: the output may be this rank's part
    if (reduced[rank_].const_data_ptr() != output.const_data_ptr())
      for (at::Tensor& t : reduced) t = apart(t, output, std::nullopt);
    const void* in = call.readable_flat(reduced).const_data_ptr();
    call.add(spec, in, call.writable(output, false).data_ptr(), r.factor);
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "reduce_scatter_tensor";
    TensorCall call(&devices_, what, "mpi-gdr:_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE,
                    opts.asyncOp, opts.timeout);
    const Reduction r = reduction(opts.reduceOp, what);
    add_reduce_scatter(call, output, input, r, rank_, size_, what);
    show(call.detail, output);
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "reduce_scatter_tensor_coalesced";
    TensorCall call(&devices_, what, "mpi-gdr:reduce_scatter_tensor_coalesced", OpType::COALESCED,
                    opts.asyncOp, opts.timeout);
    check_pairs(outputs, inputs, what);
    const Reduction r = reduction(opts.reduceOp, what);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      add_reduce_scatter(call, outputs[i], inputs[i], r, rank_, size_, what);
    call.detail.tensors = inputs.size();
    return run(std::move(call));
  });
}

MpiBackend::WorkPtr MpiBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return with_torch_errors([&] {
    if (tensors.size() != 1)
      fail(ErrorCode::InvalidUsage, "all_reduce: tensors holds ", tensors.size(), " tensors, expected 1");
    return run(sparse_all_reduce(tensors[0], opts, rank_, size_));
  });
}

}  // namespace mpigdr::torch_binding
