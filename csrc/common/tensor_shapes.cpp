#include "common/tensor_shapes.hpp"

namespace mpi_gdr {
namespace {

std::int64_t product(const std::int64_t* sizes, std::size_t dims) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < dims; ++d) elements *= sizes[d];
  return elements;
}

}  // namespace

void TensorShapes::add(const char* dtype, const std::int64_t* sizes, std::size_t dims) {
  if (count_ == kTensors) {
    Tensor& last = tensors_[kTensors - 1];
    const std::int64_t elements = product(sizes_ + last.first, last.dims) + product(sizes, dims);
    sizes_[last.first] = elements;
    last.dims = 1;
    return;
  }
  // Leaves room for one size of every later tensor, which a merged tensor needs as well.
  const std::size_t room = kSizes - used_ - static_cast<std::size_t>(kTensors - count_ - 1);
  Tensor& tensor = tensors_[count_++];
  tensor = {dtype, used_, static_cast<std::uint32_t>(dims)};
  if (dims > room) {
    tensor.dims = 1;
    sizes_[used_] = product(sizes, dims);
  } else {
    std::copy_n(sizes, dims, sizes_ + used_);
    if (dims == 0) sizes_[used_] = 1;
  }
  used_ += std::max(tensor.dims, 1u);
}

std::int64_t TensorShapes::elements() const {
  std::int64_t sum = 0;
  for (int i = 0; i < count_; ++i) sum += product(sizes(tensors_[i]), tensors_[i].dims);
  return sum;
}

}  // namespace mpi_gdr
