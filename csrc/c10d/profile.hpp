// Shows operations to torch's profiler and other observers of RecordFunction (docs/tracing.md):
//
//   mpi-gdr:all_reduce         asynchronous: from the call to the end, on any thread
//   record_param_comms         the call, with NCCL's metadata, which tools expect
//   mpi-gdr::all_reduce ring   the call, with the algorithm
//
// Without observers, see profiled(), nothing is done or allocated.
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

inline bool profiled() {  // whether this thread is observed; takes nanoseconds
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value() ||
         at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

using ProfileArguments = std::unordered_map<std::string, c10::IValue>;

// From the call to the end of an operation. Made on the calling thread; end() on any, repeatedly. Unlike
// torch's Work, which writes to the profiler's state after its events are freed, this drops a late end.
class ProfiledSpan {
 public:
  // `inputs`: read by the constructor, if observers want shapes.
  ProfiledSpan(const char* title, at::TensorList inputs, const ProfileArguments& arguments);
  ~ProfiledSpan() { end(); }
  ProfiledSpan(const ProfiledSpan&) = delete;
  ProfiledSpan& operator=(const ProfiledSpan&) = delete;

  void end() noexcept;

 private:
  std::mutex mutex_;
  std::optional<at::RecordFunction> record_;                // until end()
  const std::weak_ptr<c10::ThreadLocalDebugInfo> session_;  // of the calling thread's profiler
};

struct ProfiledGroup {
  std::string name, description;
  int rank = 0, size = 1;
  const std::vector<int>& world_ranks;  // by rank of the group
};

class ProfiledCall {  // made and destroyed on the calling thread, as a scope
 public:
  ProfiledCall(const TensorCall& call, const ProfiledGroup& group, const Group::Preview& preview,
               const ProfileArguments& arguments);
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

 private:
  std::optional<c10::DebugInfoGuard> metadata_;  // destroyed last: records read it
  std::optional<at::RecordFunction> comms_, call_;
};

ProfileArguments profile_arguments(const TensorCall& call, const ProfiledGroup& group,
                                   const Group::Preview& preview);

}  // namespace mpi_gdr::torch_binding
