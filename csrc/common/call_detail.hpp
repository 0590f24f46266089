// What messages and logs show of a call behind its name: "float32[1024] op=sum root=0". Every operation
// carries one, few are read: text is made of it by whoever reads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mpi_gdr {

struct CallDetail {
  // A tensor. `dtype` must live forever; of more than kDims sizes the first are kept.
  void show(std::string_view tensor_dtype, const std::int64_t* tensor_sizes, std::size_t count) {
    dtype = tensor_dtype;
    dims = static_cast<std::uint32_t>(count);
    std::copy_n(tensor_sizes, std::min(count, kDims), sizes);
  }
  bool empty() const { return text.empty() && tensors == 0 && dtype.empty(); }
  std::string str() const;

  static constexpr std::size_t kDims = 6;
  std::string text;         // in front of the rest: what has no member of its own
  std::size_t tensors = 0;  // of a list
  std::string_view dtype;   // of the tensor; empty: none is shown
  std::uint32_t dims = 0;
  std::int64_t sizes[kDims] = {};
  std::string_view op;  // lives forever; empty: none
  int root = -1;        // -1: none
  // Of a message: "to=1 tag=0".
  bool message = false, send = false;
  int peer = 0, tag = 0;  // -1: any
};

}  // namespace mpi_gdr
