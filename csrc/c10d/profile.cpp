#include "c10d/profile.hpp"

#include <torch/csrc/profiler/orchestration/observer.h>

#include <string_view>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "c10d/tensors.hpp"

namespace mpi_gdr::torch_binding {
namespace {

using Inputs = std::vector<c10::IValue>;

void begin(at::RecordFunction& record, std::string_view name, const Inputs& inputs,
           const ProfileArguments& arguments) {
  if (record.needsInputs()) {
    record.before(name, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()), &arguments);
  } else {
    record.before(name);
  }
}

// Exposes a protected member: whether the profiler is active.
struct Listening : torch::profiler::impl::ProfilerStateBase {
  static bool to(const ProfilerStateBase& profiler) { return profiler.*(&Listening::handle_) != 0; }
};

// False once the profiler has stopped: autograd's copies of thread states outlive it. Not safe during a stop.
bool still_listens(const c10::ThreadLocalDebugInfo* session) {
  if (!session) return false;
  auto* const state = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
  auto* const profiler = dynamic_cast<torch::profiler::impl::ProfilerStateBase*>(state);
  return !profiler || Listening::to(*profiler);
}

std::string collective_name(const TensorCall& call) {  // NCCL's spelling, which tools expect
  const std::string_view name = call.title;
  if (name == "all_reduce") return "allreduce";
  if (name == "all_reduce_coalesced") return "allreduce_coalesced";
  if (name == "_all_gather_base") return "_allgather_base";
  if (name == "recvAnySource") return "recv";
  return std::string(name);
}

// Drops sparse tensors: observers read a tensor's memory.
std::vector<at::Tensor> strided(at::TensorList tensors) {
  std::vector<at::Tensor> some = tensors.vec();
  std::erase_if(some, [](const at::Tensor& t) { return t.layout() != at::kStrided; });
  return some;
}

// Splits of an all_to_all, in elements of `tensor`; empty if even, or if there is no tensor.
std::vector<std::int64_t> splits(const std::vector<std::uint64_t>& counts, const CollectiveSpec& spec,
                                 const at::Tensor* tensor) {
  std::vector<std::int64_t> result;
  if (tensor)
    for (const std::uint64_t count : counts)
      result.push_back(static_cast<std::int64_t>(count * item_size(spec.dtype) / tensor->element_size()));
  return result;
}

// First world rank and stride; stride -1: not constant or not positive.
std::pair<int, int> stride_of(const std::vector<int>& ranks) {
  if (ranks.empty()) return {0, -1};
  const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != stride) return {ranks[0], -1};
  return {ranks[0], stride > 0 ? stride : -1};
}

// torch 2.11 has neither `async` nor sequence numbers.
template <typename Info, typename... Arguments>
std::shared_ptr<Info> make_metadata(bool async, std::int64_t sequence, bool is_message,
                                    Arguments&&... arguments) {
  std::shared_ptr<Info> info;
  if constexpr (std::is_constructible_v<Info, Arguments..., bool>)
    info = std::make_shared<Info>(std::forward<Arguments>(arguments)..., async);
  else
    info = std::make_shared<Info>(std::forward<Arguments>(arguments)...);
  if constexpr (requires { info->setSequenceInfo(sequence, is_message); })
    info->setSequenceInfo(sequence, is_message);
  return info;
}

}  // namespace

ProfiledSpan::ProfiledSpan(const char* title, at::TensorList inputs, const ProfileArguments& arguments)
    : session_(c10::ThreadLocalDebugInfo::current()) {
  record_.emplace(at::RecordScope::USER_SCOPE);
  if (record_->isActive()) {
    record_->_setAsync();
    begin(*record_, std::string("mpi-gdr:") + title, Inputs(inputs.begin(), inputs.end()), arguments);
  } else {
    record_.reset();
  }
}

void ProfiledSpan::end() noexcept {
  std::lock_guard lock(mutex_);
  if (!record_) return;
  // Observers look for their state on the current thread.
  const std::shared_ptr<c10::ThreadLocalDebugInfo> session = session_.lock();
  const std::shared_ptr<c10::ThreadLocalDebugInfo> own = c10::ThreadLocalDebugInfo::current();
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(session);
  if (!still_listens(session.get())) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
  record_.reset();  // runs the callbacks, which do not throw
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(own);
}

ProfiledCall::ProfiledCall(const TensorCall& call, const ProfiledGroup& group, const Group::Preview& preview,
                           const ProfileArguments& arguments) {
  const bool message = call.is_message();
  const auto sequence = static_cast<std::int64_t>(preview.sequence);
  const at::Tensor* const tensor = call.first_tensor();
  std::vector<std::int64_t> in_splits, out_splits;
  if (!call.calls.empty())
    if (const auto* collective = std::get_if<CollectiveCall>(&call.calls[0]);
        collective && collective->spec.collective == Collective::AllToAll) {
      in_splits = splits(collective->spec.send_counts, collective->spec, tensor);
      out_splits = splits(collective->spec.recv_counts, collective->spec, tensor);
    }
  const auto [start, stride] = stride_of(group.world_ranks);
  const std::tuple<std::string, std::string> names(group.name, group.description);
  const std::string collective = collective_name(call);
  // A message's peer, as in torch's backends.
  const int rank = message ? std::get<MessageCall>(call.calls[0]).peer : group.rank;
  const auto info = make_metadata<torch::ParamCommsDebugInfo>(
      call.async, sequence, message, names, rank, std::string(collective), elements(call.inputs),
      elements(call.outputs), tensor ? tensor->scalar_type() : at::kByte, in_splits, out_splits, start,
      stride, group.size);
  metadata_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, info);

  comms_.emplace(at::RecordScope::FUNCTION);
  if (comms_->isActive()) {
    // NCCL's order, which replays of execution traces read.
    const Inputs inputs = {c10::IValue(strided(call.inputs)),
                           c10::IValue(std::tuple<std::int64_t, bool>(sequence, message)),
                           c10::IValue(names),
                           rank,
                           collective,
                           in_splits,
                           out_splits,
                           start,
                           stride,
                           group.size,
                           call.async};
    begin(*comms_, at::kParamCommsCallName, inputs, {});
    if (comms_->needsOutputs()) comms_->setOutputs(Inputs(1, c10::IValue(strided(call.outputs))));
  }
  call_.emplace(at::RecordScope::FUNCTION);
  if (call_->isActive()) {
    // Tools search for spans that start with mpi-gdr:<title> or end with <title>; this name does neither.
    const std::string name = std::string("mpi-gdr::") + call.title + ' ' + preview.algorithm;
    begin(*call_, name, Inputs(call.inputs.begin(), call.inputs.end()), arguments);
  }
}

ProfileArguments profile_arguments(const TensorCall& call, const ProfiledGroup& group,
                                   const Group::Preview& preview) {
  ProfileArguments arguments;
  arguments["algorithm"] = preview.algorithm;
  arguments["bytes"] = static_cast<std::int64_t>(preview.bytes);
  if (const at::Tensor* tensor = call.first_tensor()) {
    arguments["dtype"] = std::string(dtype_name(tensor->scalar_type()));
    arguments["count"] = static_cast<std::int64_t>(preview.bytes / tensor->element_size());
  }
  if (!call.is_message()) arguments["sequence"] = static_cast<std::int64_t>(preview.sequence);
  arguments["group"] = group.name;
  arguments["rank"] = static_cast<std::int64_t>(group.rank);
  arguments["ranks"] = static_cast<std::int64_t>(group.size);
  return arguments;
}

}  // namespace mpi_gdr::torch_binding
