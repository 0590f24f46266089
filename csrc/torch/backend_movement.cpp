// The collectives that move data: what arrives is what was sent, whatever its type. Counts are in bytes.
#include <cstdlib>

#include "common/error.hpp"
#include "torch/backend.hpp"
#include "torch/errors.hpp"
#include "torch/tensors.hpp"

namespace mpigdr::torch_binding {
namespace {

using c10d::OpType;

[[noreturn]] void not_implemented(const char* what) {
  with_torch_errors([&] { fail(ErrorCode::NotImplemented, what, " is not implemented yet"); });
  std::abort();  // not reached
}

// Split sizes of alltoall_base as bytes per rank. Empty: even.
std::vector<std::uint64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                                       const char* tensor_name, const char* splits_name) {
  const char* const what = "all_to_all_single";
  if (tensor.dim() == 0)
    fail(ErrorCode::InvalidUsage, what, ": ", tensor_name, " is a scalar, expected at least one dimension");
  const std::int64_t rows = tensor.size(0);
  const std::uint64_t row_bytes = rows ? byte_count(tensor) / rows : 0;
  if (splits.empty()) {
    if (rows % size)
      fail(ErrorCode::InvalidUsage, what, ": ", tensor_name, " is ", describe(tensor),
           ", expected a first dimension divisible by ", size, " ranks, or ", splits_name);
    return std::vector<std::uint64_t>(size, rows / size * row_bytes);
  }
  if (splits.size() != static_cast<std::size_t>(size))
    fail(ErrorCode::InvalidUsage, what, ": ", splits_name, " has ", splits.size(), " entries, expected ",
         size, ", one per rank");
  std::vector<std::uint64_t> bytes;
  std::int64_t sum = 0;
  for (std::int64_t split : splits) {
    if (split < 0)
      fail(ErrorCode::InvalidUsage, what, ": ", splits_name, " holds ", split, ", expected no negative size");
    sum += split;
    bytes.push_back(split * row_bytes);
  }
  if (sum != rows)
    fail(ErrorCode::InvalidUsage, what, ": ", splits_name, " add up to ", sum, ", expected ", rows,
         ", the first dimension of ", tensor_name);
  return bytes;
}

void add_all_gather(Job& job, at::Tensor& output, at::Tensor& input, int rank, int size, const char* what) {
  check_strided(output, what, "output");
  check_strided(input, what, "input");
  check_same_dtype(output, input, what, "output", "input");
  check_numel(output, input.numel() * size, what, "output", "the input's, once per rank");
  CollectiveSpec spec{Collective::AllGather, rank, size};
  spec.count = byte_count(input);
  job.inputs.push_back(input);
  job.outputs.push_back(output);
  const void* in = job.readable(input).const_data_ptr();
  job.add(spec, in, job.writable(output, false).data_ptr());
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "broadcast";
    Job job(what, "mpi-gdr:broadcast", OpType::BROADCAST, opts.asyncOp, opts.timeout);
    at::Tensor& tensor = only(tensors, what, "tensors");
    CollectiveSpec spec{Collective::Broadcast, rank_, size_, static_cast<int>(opts.rootRank)};
    spec.count = byte_count(tensor);
    job.detail = describe(tensor) + " root=" + std::to_string(opts.rootRank);
    job.inputs = job.outputs = {tensor};
    const bool root = opts.rootRank == rank_;
    void* data = (root ? job.readable(tensor) : job.writable(tensor, false)).data_ptr();
    job.add(spec, data, data);
    return run(std::move(job));
  });
}

MpiBackend::WorkPtr MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "all_gather";
    Job job(what, "mpi-gdr:all_gather", OpType::ALLGATHER, opts.asyncOp, opts.timeout);
    at::Tensor& input = only(inputs, what, "input");
    if (outputs.size() != 1)
      fail(ErrorCode::InvalidUsage, what, ": output_tensors holds ", outputs.size(), " lists, expected 1");
    check_list(outputs[0], input, size_, what, "tensor_list", "tensor");
    CollectiveSpec spec{Collective::AllGather, rank_, size_};
    spec.count = byte_count(input);
    job.detail = describe(input);
    job.inputs = {input};
    job.outputs = outputs[0];
    const void* in = job.readable(input).const_data_ptr();
    job.add(spec, in, job.writable_flat(outputs[0]).data_ptr());
    return run(std::move(job));
  });
}

MpiBackend::WorkPtr MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "all_gather_into_tensor";
    Job job(what, "mpi-gdr:_all_gather_base", OpType::_ALLGATHER_BASE, opts.asyncOp, opts.timeout);
    add_all_gather(job, output, input, rank_, size_, what);
    job.detail = describe(input);
    return run(std::move(job));
  });
}

MpiBackend::WorkPtr MpiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "all_gather_into_tensor_coalesced";
    Job job(what, "mpi-gdr:all_gather_into_tensor_coalesced", OpType::COALESCED, opts.asyncOp, opts.timeout);
    check_pairs(outputs.size(), inputs.size(), what);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      add_all_gather(job, outputs[i], inputs[i], rank_, size_, what);
    job.detail = std::to_string(inputs.size()) + " tensors";
    return run(std::move(job));
  });
}

MpiBackend::WorkPtr MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits,
                                              std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& opts) {
  return with_torch_errors([&] {
    const char* const what = "all_to_all_single";
    Job job(what, "mpi-gdr:all_to_all", OpType::ALLTOALL_BASE, opts.asyncOp, opts.timeout);
    check_strided(output, what, "output");
    check_strided(input, what, "input");
    check_same_dtype(output, input, what, "output", "input");
    CollectiveSpec spec{Collective::AllToAll, rank_, size_};
    spec.send_counts = split_bytes(input, input_splits, size_, "input", "input_split_sizes");
    spec.recv_counts = split_bytes(output, output_splits, size_, "output", "output_split_sizes");
    if (spec.send_counts[rank_] != spec.recv_counts[rank_])
      fail(ErrorCode::InvalidUsage, what, ": this rank sends itself ", spec.send_counts[rank_],
           " bytes and receives ", spec.recv_counts[rank_], " from itself, expected equal ones");
    job.detail = describe(input);
    job.inputs = {input};
    job.outputs = {output};
    const void* in = job.readable(input).const_data_ptr();
    job.add(spec, in, job.writable(output, false).data_ptr());
    return run(std::move(job));
  });
}

MpiBackend::WorkPtr MpiBackend::barrier(const c10d::BarrierOptions& opts) {
  Job job("barrier", "mpi-gdr:barrier", OpType::BARRIER, opts.asyncOp, opts.timeout);
  job.add(CollectiveSpec{Collective::Barrier, rank_, size_}, nullptr, nullptr);
  return run(std::move(job));
}

MpiBackend::WorkPtr MpiBackend::allgather_coalesced(std::vector<Tensors>&, Tensors&,
                                                    const c10d::AllgatherOptions&) {
  not_implemented("all_gather_coalesced");
}
MpiBackend::WorkPtr MpiBackend::gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) {
  not_implemented("gather");
}
MpiBackend::WorkPtr MpiBackend::scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) {
  not_implemented("scatter");
}
MpiBackend::WorkPtr MpiBackend::alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) {
  not_implemented("all_to_all of tensor lists");
}

}  // namespace mpigdr::torch_binding
