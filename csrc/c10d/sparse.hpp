// all_reduce of sparse COO tensors: ranks exchange sizes first.
#pragma once

#include <ATen/ATen.h>

#include "c10d/tensor_call.hpp"

namespace mpi_gdr::torch_binding {

// Sums all ranks' tensors in order of ranks, bitwise equal on all, coalesced, into `tensor`. As Gloo: only
// SUM, any dtype that ATen adds. If shapes, sparse dimensions or dtypes differ, every rank's wait throws
// ValueError and the group goes on. All-gathers headers, then elements: O(sum of nnz) memory on each rank.
TensorCall sparse_all_reduce(const at::Tensor& tensor, const c10d::AllreduceOptions& opts, int rank,
                             int size);

}  // namespace mpi_gdr::torch_binding
