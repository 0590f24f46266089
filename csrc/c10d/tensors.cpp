#include "c10d/tensors.hpp"

#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "common/error.hpp"
#include "common/float_mode.hpp"

namespace mpi_gdr::torch_binding {
namespace {

std::optional<DataType> reducible(at::ScalarType type) {
  using enum at::ScalarType;
  // In the order of DataType.
  static constexpr at::ScalarType kTypes[] = {
      Double,          Float,          Half,        BFloat16,     Float8_e4m3fn, Float8_e5m2, Float8_e4m3fnuz,
      Float8_e5m2fnuz, Float8_e8m0fnu, ComplexHalf, ComplexFloat, ComplexDouble, Long,        Int,
      Short,           Char,           UInt64,      UInt32,       UInt16,        Byte,        Bool};
  static_assert(std::size(kTypes) == kDataTypeCount);
  const auto* const found = std::find(std::begin(kTypes), std::end(kTypes), type);
  if (found == std::end(kTypes)) return std::nullopt;
  return static_cast<DataType>(found - kTypes);
}

}  // namespace

std::string_view dtype_name(at::ScalarType type) {
  if (const auto known = reducible(type)) return name(*known);
  static const auto others = [] {  // "qint8", "bits8", "float4_e2m1fn_x2"
    std::array<std::string, static_cast<std::size_t>(at::ScalarType::NumOptions)> names;
    for (std::size_t i = 0; i < names.size(); ++i) {
      names[i] = c10::toString(static_cast<at::ScalarType>(i));
      std::transform(names[i].begin(), names[i].end(), names[i].begin(),
                     [](unsigned char c) { return std::tolower(c); });
    }
    return names;
  }();
  return others.at(static_cast<std::size_t>(type));
}

std::int64_t elements(at::TensorList tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& t : tensors) sum += t.numel();
  return sum;
}

std::string describe(const at::Tensor& tensor) {
  return c10::str(dtype_name(tensor.scalar_type()), tensor.sizes());
}

void show(CallDetail& detail, const at::Tensor& tensor) {
  detail.show(dtype_name(tensor.scalar_type()), tensor.sizes().data(), tensor.sizes().size());
}

DataType data_type(const at::Tensor& tensor, const char* what, ReduceOp op) {
  const auto type = reducible(tensor.scalar_type());
  if (!type)
    fail(ErrorCode::InvalidUsage, what, ": op=", name(op), " is not defined on ",
         dtype_name(tensor.scalar_type()), " tensors; they can be sent and gathered, not reduced");
  // Checked here, since the first collective on a device contacts other ranks.
  if (!supports(op, *type))
    fail(ErrorCode::InvalidUsage, what, ": op=", name(op), " is not defined on ",
         dtype_name(tensor.scalar_type()), " tensors");
  return *type;
}

at::Tensor copyable(const at::Tensor& tensor) {
  if (reducible(tensor.scalar_type())) return tensor;
  const std::size_t item = tensor.element_size();
  const at::ScalarType same_size = item == 1   ? at::kByte
                                   : item == 2 ? at::kShort
                                   : item == 4 ? at::kInt
                                   : item == 8 ? at::kLong
                                               : at::kComplexDouble;
  return at::empty({0}, at::TensorOptions().dtype(same_size).device(tensor.device()))
      .set_(tensor.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

void copy_data(at::TensorList to, at::TensorList from, bool non_blocking) {
  // torch rebuilds the grad_fn of a view whose version has changed, or refuses to (views of unbind).
  std::vector<std::pair<torch::autograd::DifferentiableViewMeta*, const at::Tensor*>> views;
  for (const at::Tensor& t : to) {
    auto* const view = t.is_inference() ? nullptr : torch::autograd::impl::get_view_autograd_meta(t);
    if (view && view->has_bw_view() && view->get_attr_version() == t._version()) views.emplace_back(view, &t);
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    const c10::InferenceMode mode(to[i].is_inference());  // required to write inference tensors
    const c10::AutoGradMode no_gradients(false);          // InferenceMode(false) enables both
    const c10::AutoFwGradMode no_tangents(false);
    to[i].copy_(from[i], non_blocking);
  }
  for (const auto& [view, tensor] : views)
    view->set_attr_version(static_cast<std::uint32_t>(tensor->_version()));
}

Reduction reduction(const c10d::ReduceOp& op, const char* what) {
  using Theirs = c10d::ReduceOp;
  static constexpr std::pair<Theirs::RedOpType, ReduceOp> kPlain[] = {
      {Theirs::SUM, ReduceOp::Sum},   {Theirs::AVG, ReduceOp::Avg},    {Theirs::PRODUCT, ReduceOp::Product},
      {Theirs::MIN, ReduceOp::Min},   {Theirs::MAX, ReduceOp::Max},    {Theirs::BAND, ReduceOp::BitAnd},
      {Theirs::BOR, ReduceOp::BitOr}, {Theirs::BXOR, ReduceOp::BitXor}};
  for (const auto& [theirs, ours] : kPlain)
    if (op.op_ == theirs) return {ours};
  if (op.op_ != Theirs::PREMUL_SUM)
    fail(ErrorCode::InvalidUsage, what, ": op=", static_cast<int>(op.op_), " is not a reduction");
  // This type has the same name in all releases since 2.11.
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (!factor) fail(ErrorCode::InvalidUsage, what, ": op=PREMUL_SUM carries no factor");
  const at::Tensor& tensor = factor->tensor_factor;
  if (!tensor.defined()) return {ReduceOp::PreMulSum, factor->double_factor};
  if (tensor.is_complex())  // torch has checked that it has one element
    fail(ErrorCode::InvalidUsage, what, ": the factor of op=PREMUL_SUM is ", describe(tensor),
         ", expected a real number");
  const StandardFloatMode mode;  // the conversion must not flush denormals
  return {ReduceOp::PreMulSum, tensor.item<double>()};
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what, const char* argument) {
  if (tensors.size() != 1)
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " holds ", tensors.size(), " tensors, expected 1");
  check_strided(tensors[0], what, argument);
  return tensors[0];
}

void check_strided(const at::Tensor& tensor, const char* what, const char* argument) {
  if (!tensor.defined())
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is undefined, expected a tensor");
  if (tensor.layout() != at::kStrided)
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is a ", c10::str(tensor.layout()),
         " tensor, expected a strided one (all_reduce also takes sparse COO tensors)");
  if (tensor.is_meta())
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is ", describe(tensor),
         " on the device meta, expected a tensor that holds data");
}

void check_writable(const at::Tensor& tensor, const char* what) {
  if (tensor.numel() > 1 && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    fail(ErrorCode::InvalidUsage, what, ": a tensor to write to is ", describe(tensor), " with strides ",
         c10::str(tensor.strides()),
         ", several of its elements share memory (an expanded tensor?), expected elements that do not "
         "overlap; pass a clone()");
}

void check_alike(const at::Tensor& a, const at::Tensor& b, const char* what, const char* a_name,
                 const char* b_name) {
  check_strided(a, what, a_name);
  check_strided(b, what, b_name);
  if (a.scalar_type() != b.scalar_type())
    fail(ErrorCode::InvalidUsage, what, ": ", a_name, " is ", describe(a), " and ", b_name, " is ",
         describe(b), ", expected equal dtypes");
  if (a.device() != b.device())
    fail(ErrorCode::InvalidUsage, what, ": ", a_name, " is on ", a.device().str(), " and ", b_name, " on ",
         b.device().str(), ", expected the same device");
}

void check_numel(const at::Tensor& tensor, std::int64_t expected, const char* what, const char* argument,
                 const char* why) {
  if (tensor.numel() != expected)
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is ", describe(tensor), " with ", tensor.numel(),
         " elements, expected ", expected, " (", why, ")");
}

void check_coalesced(const std::vector<at::Tensor>& list, const char* what, const char* argument) {
  if (list.empty())
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is empty, expected at least one tensor");
  for (const at::Tensor& t : list) {
    check_strided(t, what, argument);
    if (t.device() != list[0].device())
      fail(ErrorCode::InvalidUsage, what, ": ", argument, " holds tensors on ", list[0].device().str(),
           " and ", t.device().str(), ", expected one device");
  }
}

void check_length(const std::vector<at::Tensor>& list, int size, const char* what, const char* argument) {
  if (list.size() != static_cast<std::size_t>(size))
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " holds ", list.size(), " tensors, expected ", size,
         ", one per rank");
}

void check_root(std::int64_t root, int size, const char* what) {
  if (root < 0 || root >= size)
    fail(ErrorCode::InvalidUsage, what, ": root=", root, " is not a rank of the group: expected 0..",
         size - 1);
}

bool check_root_list(const std::vector<std::vector<at::Tensor>>& lists, bool root, const char* what,
                     const char* argument) {
  if (root && lists.size() != 1)
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " is missing on the root (", lists.size(),
         " lists), expected one list with a tensor per rank");
  if (!root && !lists.empty() && !lists[0].empty())
    fail(ErrorCode::InvalidUsage, what, ": ", argument, " holds ", lists[0].size(),
         " tensors on a rank that is not the root, expected none");
  return root;
}

void check_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size, const char* what,
                const char* list_name, const char* other_name) {
  check_length(list, size, what, list_name);
  for (const at::Tensor& t : list) {
    check_alike(t, other, what, list_name, other_name);
    if (t.numel() != other.numel())
      fail(ErrorCode::InvalidUsage, what, ": ", list_name, " holds ", describe(t), " where ", other_name,
           " is ", describe(other), ", expected as many elements");
  }
}

void check_pairs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                 const char* what) {
  if (outputs.size() != inputs.size())
    fail(ErrorCode::InvalidUsage, what, ": ", outputs.size(), " outputs and ", inputs.size(),
         " inputs, expected as many of each");
  check_coalesced(inputs, what, "inputs");
}

void set_counts(CollectiveSpec& spec, const std::vector<at::Tensor>& list, const at::Tensor& own, Unit unit,
                const char* what, const char* list_name, const char* own_name) {
  check_length(list, spec.size, what, list_name);
  bool even = true;
  for (const at::Tensor& t : list) {
    check_alike(t, own, what, list_name, own_name);
    even &= t.numel() == list[0].numel();
    spec.counts.push_back(unit == Unit::Bytes ? byte_count(t) : static_cast<std::uint64_t>(t.numel()));
  }
  if (list[spec.rank].numel() != own.numel())
    fail(ErrorCode::InvalidUsage, what, ": ", list_name, '[', spec.rank, "], this rank's, is ",
         describe(list[spec.rank]), " and ", own_name, " is ", describe(own), ", expected as many elements");
  spec.count = spec.counts[spec.rank];
  if (even) spec.counts.clear();
}

at::Tensor apart(const at::Tensor& input, const at::Tensor& output, std::optional<std::int64_t> offset) {
  if (!input.has_storage() || !output.has_storage() || !input.is_alias_of(output)) return input;
  const auto* in = static_cast<const char*>(input.const_data_ptr());
  const auto* out = static_cast<const char*>(output.const_data_ptr());
  return offset && in == out + *offset ? input : input.clone();
}

}  // namespace mpi_gdr::torch_binding
