// Collectives that move data, counted in bytes.
#include <algorithm>

#include "c10d/backend.hpp"
#include "c10d/tensors.hpp"
#include "common/error.hpp"

namespace mpi_gdr::torch_binding {
namespace {

using c10d::OpType;

// The bytes for each rank in alltoall_base; empty `splits`: equal parts.
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

void check_to_itself(const CollectiveSpec& spec, const char* what) {
  if (spec.send_counts[spec.rank] != spec.recv_counts[spec.rank])
    fail(ErrorCode::InvalidUsage, what, ": this rank sends itself ", spec.send_counts[spec.rank],
         " bytes and receives ", spec.recv_counts[spec.rank], " from itself, expected equal ones");
}

// `output` holds the inputs of all ranks.
void check_output(const at::Tensor& output, const at::Tensor& input, int size, const char* what,
                  const char* output_name, const char* input_name) {
  check_alike(output, input, what, output_name, input_name);
  check_numel(output, input.numel() * size, what, output_name, "the input's, once per rank");
}

void add_all_gather(TensorCall& call, at::Tensor& output, at::Tensor& input, int rank, int size) {
  check_output(output, input, size, call.name, "output", "input");
  const CollectiveSpec spec{Collective::AllGather, rank, size, 0, byte_count(input)};
  call.inputs.push_back(input);
  call.outputs.push_back(output);
  const void* in = call.readable(apart(input, output, spec.count * rank));
  call.add(spec, in, call.writable(output, false));
}

std::vector<std::uint64_t> byte_counts(const std::vector<at::Tensor>& list) {
  std::vector<std::uint64_t> bytes;
  for (const at::Tensor& t : list) bytes.push_back(byte_count(t));
  return bytes;
}

// `block`: a tensor of the size of each rank's part.
CollectiveSpec rooted(TensorCall& call, Collective collective, const at::Tensor& block, std::int64_t root,
                      int rank, int size) {
  check_root(root, size, call.name);
  show(call.detail, block);
  return {collective, rank, size, static_cast<int>(root), byte_count(block)};
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return collective("broadcast", OpType::BROADCAST, opts, [&](TensorCall& call) {
    at::Tensor& tensor = only(tensors, call.name, "tensors");
    const auto root = static_cast<int>(opts.rootRank);
    const CollectiveSpec spec{Collective::Broadcast, rank_, size_, root, byte_count(tensor)};
    show(call.detail, tensor);
    call.outputs.push_back(call.inputs.emplace_back(tensor));
    void* data = root == rank_ ? const_cast<void*>(call.readable(tensor)) : call.writable(tensor, false);
    call.add(spec, data, data);
  });
}

MpiBackend::WorkPtr MpiBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  return collective("all_gather", OpType::ALLGATHER, opts, [&](TensorCall& call) {
    at::Tensor& input = only(inputs, call.name, "input");
    if (outputs.size() != 1)
      fail(ErrorCode::InvalidUsage, call.name, ": output_tensors holds ", outputs.size(),
           " lists, expected 1");
    CollectiveSpec spec{Collective::AllGather, rank_, size_};
    set_counts(spec, outputs[0], input, Unit::Bytes, call.name, "tensor_list", "tensor");
    show(call.detail, input);
    call.inputs.push_back(input);
    call.outputs = outputs[0];
    const void* in = call.readable(apart(input, outputs[0][rank_], 0));
    call.add(spec, in, call.writable(outputs[0], false));
  });
}

MpiBackend::WorkPtr MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  return collective("all_gather_into_tensor", OpType::_ALLGATHER_BASE, opts, [&](TensorCall& call) {
    call.title = "_all_gather_base";
    add_all_gather(call, output, input, rank_, size_);
    show(call.detail, input);
  });
}

MpiBackend::WorkPtr MpiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  return collective("all_gather_into_tensor_coalesced", OpType::COALESCED, opts, [&](TensorCall& call) {
    check_pairs(outputs, inputs, call.name);
    for (std::size_t i = 0; i < inputs.size(); ++i) add_all_gather(call, outputs[i], inputs[i], rank_, size_);
    call.detail.tensors = inputs.size();
  });
}

// `outputs`: per rank, as many tensors as inputs.
MpiBackend::WorkPtr MpiBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  return collective("all_gather_coalesced", OpType::ALLGATHER_COALESCED, opts, [&](TensorCall& call) {
    check_coalesced(inputs, call.name, "input_tensor_list");
    if (outputs.size() != static_cast<std::size_t>(size_))
      fail(ErrorCode::InvalidUsage, call.name, ": output_tensor_lists holds ", outputs.size(),
           " lists, expected ", size_, ", one per rank");
    for (const Tensors& list : outputs)
      if (list.size() != inputs.size())
        fail(ErrorCode::InvalidUsage, call.name, ": a list of output_tensor_lists holds ", list.size(),
             " tensors, expected ", inputs.size(), ", as many as input_tensor_list");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors from_all;
      for (const Tensors& list : outputs) from_all.push_back(list[i]);
      check_list(from_all, inputs[i], size_, call.name, "output_tensor_lists", "input_tensor_list");
      const CollectiveSpec spec{Collective::AllGather, rank_, size_, 0, byte_count(inputs[i])};
      const void* in = call.readable(apart(inputs[i], from_all[rank_], 0));
      call.add(spec, in, call.writable(from_all, false));
    }
    call.detail.tensors = inputs.size();
    call.inputs = inputs;
    for (const Tensors& list : outputs) call.outputs.append(list.begin(), list.end());
  });
}

MpiBackend::WorkPtr MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits,
                                              std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& opts) {
  return collective("all_to_all_single", OpType::ALLTOALL_BASE, opts, [&](TensorCall& call) {
    call.title = "all_to_all";
    check_alike(output, input, call.name, "output", "input");
    CollectiveSpec spec{Collective::AllToAll, rank_, size_};
    spec.send_counts = split_bytes(input, input_splits, size_, "input", "input_split_sizes");
    spec.recv_counts = split_bytes(output, output_splits, size_, "output", "output_split_sizes");
    check_to_itself(spec, call.name);
    show(call.detail, input);
    call.inputs.push_back(input);
    call.outputs.push_back(output);
    const void* in = call.readable(input.is_alias_of(output) ? input.clone() : input);
    call.add(spec, in, call.writable(output, false));
  });
}

MpiBackend::WorkPtr MpiBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllToAllOptions& opts) {
  return collective("all_to_all", OpType::ALLTOALL, opts, [&](TensorCall& call) {
    check_length(outputs, size_, call.name, "output_tensor_list");
    check_length(inputs, size_, call.name, "input_tensor_list");
    bool aliases = false;
    for (const auto& [list, name] :
         {std::pair(&outputs, "output_tensor_list"), {&inputs, "input_tensor_list"}})
      for (const at::Tensor& t : *list) {
        check_alike(t, outputs[0], call.name, name, "output_tensor_list[0]");
        aliases |= t.is_alias_of(outputs[0]) && list == &inputs;
      }
    CollectiveSpec spec{Collective::AllToAll, rank_, size_};
    spec.send_counts = byte_counts(inputs);
    spec.recv_counts = byte_counts(outputs);
    check_to_itself(spec, call.name);
    call.detail.tensors = inputs.size();
    show(call.detail, inputs[0]);
    call.inputs = inputs;
    call.outputs = outputs;
    Tensors sent = inputs;
    if (aliases)
      for (at::Tensor& t : sent) t = t.clone();
    const void* in = call.readable(sent);
    call.add(spec, in, call.writable(outputs, false));
  });
}

MpiBackend::WorkPtr MpiBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& opts) {
  return collective("gather", OpType::GATHER, opts, [&](TensorCall& call) {
    at::Tensor& input = only(inputs, call.name, "tensor");
    const CollectiveSpec spec = rooted(call, Collective::Gather, input, opts.rootRank, rank_, size_);
    call.inputs.push_back(input);
    void* out = nullptr;
    if (check_root_list(outputs, rank_ == opts.rootRank, call.name, "gather_list")) {
      check_list(outputs[0], input, size_, call.name, "gather_list", "tensor");
      call.outputs = outputs[0];
      out = call.writable(outputs[0], false);
    }
    call.add(spec, call.readable(out ? apart(input, outputs[0][rank_], 0) : input), out);
  });
}

MpiBackend::WorkPtr MpiBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                   const c10d::GatherOptions& opts) {
  return collective("gather_single", OpType::GATHER, opts, [&](TensorCall& call) {
    check_strided(input, call.name, "tensor");
    const CollectiveSpec spec = rooted(call, Collective::Gather, input, opts.rootRank, rank_, size_);
    call.inputs.push_back(input);
    if (rank_ != opts.rootRank) return call.add(spec, call.readable(input), nullptr);
    check_output(output, input, size_, call.name, "gather_tensor", "tensor");
    call.outputs.push_back(output);
    const void* in = call.readable(apart(input, output, spec.count * rank_));
    call.add(spec, in, call.writable(output, false));
  });
}

MpiBackend::WorkPtr MpiBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& opts) {
  return collective("scatter", OpType::SCATTER, opts, [&](TensorCall& call) {
    at::Tensor& output = only(outputs, call.name, "tensor");
    const CollectiveSpec spec = rooted(call, Collective::Scatter, output, opts.rootRank, rank_, size_);
    call.outputs.push_back(output);
    const void* in = nullptr;
    if (check_root_list(inputs, rank_ == opts.rootRank, call.name, "scatter_list")) {
      check_list(inputs[0], output, size_, call.name, "scatter_list", "tensor");
      call.inputs = inputs[0];
      Tensors sent = inputs[0];
      // In place: the root's part may be its output.
      if (sent[rank_].const_data_ptr() != output.const_data_ptr())
        for (at::Tensor& t : sent) t = apart(t, output, std::nullopt);
      in = call.readable(sent);
    }
    call.add(spec, in, call.writable(output, false));
  });
}

MpiBackend::WorkPtr MpiBackend::barrier(const c10d::BarrierOptions& opts) {
  return collective("barrier", OpType::BARRIER, opts, [&](TensorCall& call) {
    if (devices_.capturing())
      fail(ErrorCode::InvalidUsage,
           "barrier: the current stream is being captured into a graph, and the CPU would wait: call it "
           "outside of the graph");
    wait_for_accelerator();  // as ProcessGroupNCCL; torch passes no device
    call.add(CollectiveSpec{Collective::Barrier, rank_, size_}, nullptr, nullptr);
  });
}

// Rank 0 receives a message from each rank, then answers. On timeout it reports all ranks that have not
// called, regardless of `wait_all_ranks`; the others wait twice as long for its answer.
void MpiBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  const std::chrono::milliseconds least(1);  // 0 means no deadline elsewhere
  const std::chrono::milliseconds patience = opts.timeout == c10d::kUnsetTimeout
                                                 ? bounded(group_->timeout())
                                                 : std::max(bounded(opts.timeout), least);
  at::Tensor bytes = at::zeros({size_}, at::kByte);
  const auto exchange = [&](bool send, std::chrono::milliseconds timeout) {
    with_torch_errors([&] {
      const OpType type = send ? OpType::SEND : OpType::RECV;
      TensorCall call(&devices_, "monitored_barrier", type, false, timeout);
      for (int peer = rank_ == 0 ? 1 : 0; peer < (rank_ == 0 ? size_ : 1); ++peer) {
        const MessageCall message{.send = send, .peer = peer, .tag = group_->max_tag()};
        call.add_message(message, bytes.narrow(0, peer, 1));
      }
      run(std::move(call));
    });
  };
  if (size_ == 1) return;
  exchange(rank_ != 0, patience);
  exchange(rank_ == 0, 2 * patience);
}

}  // namespace mpi_gdr::torch_binding
