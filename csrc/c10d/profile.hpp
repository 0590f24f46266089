// What torch's profiler, and any other observer of RecordFunction, sees of an operation:
//
//   mpi-gdr:all_reduce         asynchronous: from the call until the operation is over, on whatever thread
//   record_param_comms         the call itself, with the metadata that NCCL's have: tools know them
//   mpi-gdr::all_reduce ring   the same, with the algorithm
//
// docs/tracing.md shows what comes of it. Nothing here is done, and no memory is allocated, while none
// observes: profiled() says so.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "c10d/tensor_call.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

// Whether a call of this thread is observed. A few nanoseconds.
inline bool profiled() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value() ||
         at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

using ProfileArguments = std::unordered_map<std::string, c10::IValue>;

// From the call to the end of an operation. Made on the calling thread; end() by any, as often as they like.
//
// torch's own Work keeps the profiler's state, and writes to it also when the profiler has stopped and freed
// its events. Here the state is only watched: an end that comes too late is not passed on.
class ProfiledSpan {
 public:
  // `title`: as TensorCall's. `inputs`: looked at by the constructor only, if the observer wants shapes.
  ProfiledSpan(const char* title, const std::vector<at::Tensor>& inputs, const ProfileArguments& arguments);
  ~ProfiledSpan() { end(); }
  ProfiledSpan(const ProfiledSpan&) = delete;
  ProfiledSpan& operator=(const ProfiledSpan&) = delete;

  void end() noexcept;

 private:
  std::mutex mutex_;
  std::optional<at::RecordFunction> record_;  // until the end
  // Where a profiler that was started on the calling thread keeps its state.
  const std::weak_ptr<c10::ThreadLocalDebugInfo> session_;
};

// What of the group is shown.
struct ProfiledGroup {
  std::string name, description;
  int rank = 0, size = 1;
  const std::vector<int>& world_ranks;  // of the members
};

// The call, while it exists. Made and destroyed by the calling thread, in the order of a scope.
class ProfiledCall {
 public:
  ProfiledCall(const TensorCall& call, const ProfiledGroup& group, const Group::Preview& preview,
               const ProfileArguments& arguments);
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

 private:
  // Destroyed from below: the observers look at the metadata when the records end.
  std::optional<c10::DebugInfoGuard> metadata_;
  std::optional<at::RecordFunction> comms_, call_;
};

// algorithm, bytes, dtype, count, sequence, group, ranks: what is shown besides the tensors' sizes.
ProfileArguments profile_arguments(const TensorCall& call, const ProfiledGroup& group,
                                   const Group::Preview& preview);

}  // namespace mpi_gdr::torch_binding
