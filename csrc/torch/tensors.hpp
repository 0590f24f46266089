// From tensors and c10d's options to what the engine understands, with messages that name the argument.
// `what` is the operation's name, "all_reduce". Everything here throws mpigdr::Error before anything is sent.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "common/types.hpp"

namespace mpigdr::torch_binding {

DataType data_type(const at::Tensor& tensor, const char* what);

struct Reduction {
  ReduceOp op = ReduceOp::Sum;
  double factor = 1.0;  // PreMulSum
};
Reduction reduction(const c10d::ReduceOp& op, const char* what);

// The only tensor of a list that c10d keeps for historical reasons.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what, const char* argument);

void check_strided(const at::Tensor& tensor, const char* what, const char* argument);
void check_same_dtype(const at::Tensor& a, const at::Tensor& b, const char* what, const char* a_name,
                      const char* b_name);
void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* argument,
                 const char* why);

// "float32[64, 3]"
std::string describe(const at::Tensor& tensor);

}  // namespace mpigdr::torch_binding
