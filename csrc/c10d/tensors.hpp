// From tensors and c10d's options to what the engine understands, with messages that name the argument.
// `what` is the operation's name, "all_reduce". Everything throws mpi_gdr::Error before anything is sent.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "common/call_detail.hpp"
#include "common/types.hpp"
#include "schedule/spec.hpp"

namespace mpi_gdr::torch_binding {

// The type to reduce the tensor as. Throws if its dtype can only be moved, or `op` is not defined on it.
DataType data_type(const at::Tensor& tensor, const char* what, ReduceOp op);

// The tensor itself, or the same memory under an integer dtype of the same size: ATen has no copy between
// integers of odd widths (int4), nor between quantised tensors without a quantiser.
at::Tensor copyable(const at::Tensor& tensor);

// Copies one by one, as the engine writes, whatever the calling thread's modes: autograd records nothing, and
// a view keeps its grad_fn. The versions of `to` count on.
void copy_data(at::TensorList to, at::TensorList from, bool non_blocking = false);

struct Reduction {
  ReduceOp op = ReduceOp::Sum;
  double factor = 1.0;  // PreMulSum
};
Reduction reduction(const c10d::ReduceOp& op, const char* what);

// The only tensor of a list that c10d keeps for historical reasons.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what, const char* argument);

void check_strided(const at::Tensor& tensor, const char* what, const char* argument);
// Throws if elements of a tensor that shall be written share memory, as those of an expanded one do.
void check_writable(const at::Tensor& tensor, const char* what);
// Both strided, of one dtype and on one device.
void check_alike(const at::Tensor& a, const at::Tensor& b, const char* what, const char* a_name,
                 const char* b_name);
void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* argument,
                 const char* why);

// Not empty; each strided, all on one device.
void check_coalesced(const std::vector<at::Tensor>& list, const char* what, const char* argument);
// One tensor per rank.
void check_length(const std::vector<at::Tensor>& list, int size, const char* what, const char* argument);
void check_root(std::int64_t root, int size, const char* what);
// The list of lists that gather and scatter take on the root, and only there. True on the root.
bool check_root_list(const std::vector<std::vector<at::Tensor>>& lists, bool root, const char* what,
                     const char* argument);

// One tensor per rank, each as large as `other`.
void check_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size, const char* what,
                const char* list_name, const char* other_name);
// Coalesced operations: one output for each input, all on one device.
void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* what);

// Fills in `count`, or `counts` where they differ, from one tensor per rank, of which this rank's is as large
// as `own`. The list's sizes are equal on all ranks, and so is what follows from them. In bytes, or elements.
enum class Unit { Bytes, Elements };
void set_counts(CollectiveSpec& spec, const std::vector<at::Tensor>& list, const at::Tensor& own, Unit unit,
                const char* what, const char* list_name, const char* own_name);

// `input`, or a copy of it if it overlaps the memory of `output` in a way that no collective allows: anywhere
// but `offset` bytes behind the output's begin.
at::Tensor apart(const at::Tensor& input, const at::Tensor& output, std::optional<std::int64_t> offset);

// Bytes of a movement of whole tensors; the type does not matter.
inline std::uint64_t byte_count(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.nbytes());
}

// Of all of them together.
std::int64_t elements(const std::vector<at::Tensor>& tensors);

// As Python spells it: "float32". Lives for ever.
std::string_view dtype_name(at::ScalarType type);

// "float32[64, 3]"
std::string describe(const at::Tensor& tensor);
// Puts the same into `detail`, as numbers.
void show(CallDetail& detail, const at::Tensor& tensor);

}  // namespace mpi_gdr::torch_binding
