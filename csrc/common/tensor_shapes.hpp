// An operation's inputs or outputs. Shapes that do not fit are flattened; the last entry sums up the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mpi_gdr {

class TensorShapes {
 public:
  TensorShapes() {}  // only the filled parts of the arrays are read
  TensorShapes(const TensorShapes& other) { *this = other; }
  TensorShapes& operator=(const TensorShapes& other) {
    count_ = other.count_;
    used_ = other.used_;
    std::copy_n(other.tensors_, count_, tensors_);
    std::copy_n(other.sizes_, used_, sizes_);
    return *this;
  }
  // `dtype` must live as long as the process; `sizes` has `dims` numbers.
  void add(const char* dtype, const std::int64_t* sizes, std::size_t dims);
  void add(const char* dtype, std::int64_t elements) { add(dtype, &elements, 1); }

  struct Tensor {
    const char* dtype;
    std::uint32_t first, dims;  // in sizes_
  };
  int count() const { return count_; }
  const Tensor& operator[](int i) const { return tensors_[i]; }
  const std::int64_t* sizes(const Tensor& tensor) const { return sizes_ + tensor.first; }
  std::int64_t elements() const;  // of all tensors

 private:
  static constexpr int kTensors = 6;
  static constexpr std::size_t kSizes = 16;
  int count_ = 0;
  std::uint32_t used_ = 0;
  Tensor tensors_[kTensors];
  std::int64_t sizes_[kSizes];
};

}  // namespace mpi_gdr
