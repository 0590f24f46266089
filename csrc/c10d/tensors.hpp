// Converts tensors and c10d options to the engine's values. Throws mpi_gdr::Error, which names the argument,
// before data is sent. `what`: the operation, "all_reduce".
#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "common/call_detail.hpp"
#include "common/types.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr::torch_binding {

using FewTensors = c10::SmallVector<at::Tensor, 1>;  // one allocates nothing

// Throws if the dtype can only be moved, or `op` is not defined on it.
DataType data_type(const at::Tensor& tensor, const char* what, ReduceOp op);

// The same memory, as integers if ATen cannot copy the dtype: int4, or quantised without a quantiser.
at::Tensor copyable(const at::Tensor& tensor);

// In any autograd mode: records no gradient, keeps the grad_fn of views, increments the versions of `to`.
void copy_data(at::TensorList to, at::TensorList from, bool non_blocking = false);

struct Reduction {
  ReduceOp op = ReduceOp::Sum;
  double factor = 1.0;  // PreMulSum
};
Reduction reduction(const c10d::ReduceOp& op, const char* what);

// The only tensor of a list; throws if there are others.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what, const char* argument);

void check_strided(const at::Tensor& tensor, const char* what, const char* argument);
// Throws if elements share memory (expanded tensors).
void check_writable(const at::Tensor& tensor, const char* what);
// Strided, equal dtype and device.
void check_alike(const at::Tensor& a, const at::Tensor& b, const char* what, const char* a_name,
                 const char* b_name);
void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* argument,
                 const char* why);

// Not empty, all strided, one device.
void check_coalesced(const std::vector<at::Tensor>& list, const char* what, const char* argument);
void check_length(const std::vector<at::Tensor>& list, int size, const char* what, const char* argument);
void check_root(std::int64_t root, int size, const char* what);
// A list of lists, given on the root only. Returns `root`.
bool check_root_list(const std::vector<std::vector<at::Tensor>>& lists, bool root, const char* what,
                     const char* argument);

// One tensor per rank, all as large as `other`.
void check_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size, const char* what,
                const char* list_name, const char* other_name);
// One output per input, one device.
void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* what);

// Sets `count`, or `counts` if sizes differ, from one tensor per rank. Throws if this rank's tensor and `own`
// differ in size. All ranks must pass the same sizes.
enum class Unit { Bytes, Elements };
void set_counts(CollectiveSpec& spec, const std::vector<at::Tensor>& list, const at::Tensor& own, Unit unit,
                const char* what, const char* list_name, const char* own_name);

// `input`, or a copy if it shares memory with `output` and does not begin `offset` bytes into it.
at::Tensor apart(const at::Tensor& input, const at::Tensor& output, std::optional<std::int64_t> offset);

inline std::uint64_t byte_count(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.nbytes());
}

std::int64_t elements(at::TensorList tensors);

std::string_view dtype_name(at::ScalarType type);  // Python's spelling: "float32"; never freed

std::string describe(const at::Tensor& tensor);  // "float32[64, 3]"
void show(CallDetail& detail, const at::Tensor& tensor);

}  // namespace mpi_gdr::torch_binding
