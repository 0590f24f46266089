// What of a c10d call goes into an entry of the flight log and of the trace.
#pragma once

#include "engine/group.hpp"
#include "torch/tensor_call.hpp"

namespace mpigdr::torch_binding {

// Options with what the flight log and the trace show of a call's tensors. They are recorded as NCCL's are:
// the list of an all_gather, reduce_scatter or all_to_all as one flat tensor.
IssueOptions describe_tensors(const TensorCall& call);

}  // namespace mpigdr::torch_binding
