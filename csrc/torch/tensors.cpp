#include "torch/tensors.hpp"

#include "common/error.hpp"

namespace mpigdr::torch_binding {
namespace {

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kShort:
      return "int16";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  std::string text = dtype_name(tensor.scalar_type());  // for every operation: no stream
  text += '[';
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (d) text += ", ";
    text += std::to_string(tensor.size(d));
  }
  text += ']';
  return text;
}

DataType data_type(const at::Tensor& tensor, const char* what) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return DataType::Float64;
    case at::kFloat:
      return DataType::Float32;
    case at::kHalf:
      return DataType::Float16;
    case at::kBFloat16:
      return DataType::BFloat16;
    case at::kLong:
      return DataType::Int64;
    case at::kInt:
      return DataType::Int32;
    case at::kShort:
      return DataType::Int16;
    case at::kChar:
      return DataType::Int8;
    case at::kByte:
      return DataType::UInt8;
    case at::kBool:
      return DataType::Bool;
    default:
      fail(ErrorCode::NotImplemented, what, ": reducing ", dtype_name(tensor.scalar_type()),
           " tensors is not implemented; reductions know float64, float32, float16, bfloat16, int64, int32, "
           "int16, "
           "int8, uint8 and bool");
  }
}

Reduction reduction(const c10d::ReduceOp& op, const char* what) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {ReduceOp::Sum};
    case c10d::ReduceOp::AVG:
      return {ReduceOp::Avg};
    case c10d::ReduceOp::PRODUCT:
      return {ReduceOp::Product};
    case c10d::ReduceOp::MIN:
      return {ReduceOp::Min};
    case c10d::ReduceOp::MAX:
      return {ReduceOp::Max};
    case c10d::ReduceOp::PREMUL_SUM: {
      // The old name of the class is the one that all releases from 2.11 on have.
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (!factor) fail(ErrorCode::InvalidUsage, what, ": op=PREMUL_SUM carries no factor");
      return {ReduceOp::PreMulSum,
              factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor};
    }
    case c10d::ReduceOp::BAND:
      fail(ErrorCode::NotImplemented, what, ": op=BAND is not implemented");
    case c10d::ReduceOp::BOR:
      fail(ErrorCode::NotImplemented, what, ": op=BOR is not implemented");
    case c10d::ReduceOp::BXOR:
      fail(ErrorCode::NotImplemented, what, ": op=BXOR is not implemented");
    default:
      fail(ErrorCode::InvalidUsage, what, ": op=", static_cast<int>(op.op_), " is not a reduction");
  }
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
    fail(ErrorCode::NotImplemented, what, ": ", argument, " is a ", c10::str(tensor.layout()),
         " tensor; only strided tensors are implemented");
}

void check_same_dtype(const at::Tensor& a, const at::Tensor& b, const char* what, const char* a_name,
                      const char* b_name) {
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

void check_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size, const char* what,
                const char* list_name, const char* other_name) {
  if (list.size() != static_cast<std::size_t>(size))
    fail(ErrorCode::InvalidUsage, what, ": ", list_name, " holds ", list.size(), " tensors, expected ", size,
         ", one per rank");
  for (const at::Tensor& t : list) {
    check_strided(t, what, list_name);
    check_same_dtype(t, other, what, list_name, other_name);
    if (t.numel() != other.numel())
      fail(ErrorCode::NotImplemented, what, ": ", list_name, " holds ", describe(t), " where ", other_name,
           " is ", describe(other), "; tensors of different sizes are not implemented yet");
  }
}

void check_pairs(std::size_t outputs, std::size_t inputs, const char* what) {
  if (outputs != inputs)
    fail(ErrorCode::InvalidUsage, what, ": ", outputs, " outputs and ", inputs,
         " inputs, expected as many of each");
}

}  // namespace mpigdr::torch_binding
