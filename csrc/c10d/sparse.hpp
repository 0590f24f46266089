// all_reduce of sparse COO tensors: ranks hold different numbers of elements, so that sizes travel first.
#pragma once

#include <ATen/ATen.h>

#include "c10d/tensor_call.hpp"

namespace mpi_gdr::torch_binding {

// The sum of all ranks' tensors, in the order of ranks and thus equal in every bit on all of them, coalesced,
// into `tensor`. As Gloo's: only SUM, any dtype that ATen adds up. If shape, number of sparse dimensions or
// dtype differ between ranks, all of them get a ValueError when they wait, and the group goes on. Costs an
// all_gather of headers and one of all ranks' elements: O(sum of nnz) memory on each rank.
TensorCall sparse_all_reduce(const at::Tensor& tensor, const c10d::AllreduceOptions& opts, int rank,
                             int size);

}  // namespace mpi_gdr::torch_binding
