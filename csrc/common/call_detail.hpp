// A call's details for messages and logs: "float32[1024] op=sum root=0". Formatted only when read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mpi_gdr {

struct CallDetail {
  // `tensor_dtype` must outlive the process's operations; only the first kDims sizes are kept.
  void show(std::string_view tensor_dtype, const std::int64_t* tensor_sizes, std::size_t count) {
    dtype = tensor_dtype;
    dims = static_cast<std::uint32_t>(count);
    std::copy_n(tensor_sizes, std::min(count, kDims), sizes);
  }
  bool empty() const { return text.empty() && tensors == 0 && dtype.empty(); }
  std::string str() const;

  static constexpr std::size_t kDims = 6;
  std::string text;         // shown first; for details without a member
  std::size_t tensors = 0;  // length of a tensor list
  std::string_view dtype;   // empty: no tensor is shown
  std::uint32_t dims = 0;
  std::int64_t sizes[kDims] = {};
  std::string_view op;  // must live as long as the process; empty: none
  int root = -1;        // -1: none
  bool message = false, send = false;
  int peer = 0, tag = 0;  // -1: any
};

}  // namespace mpi_gdr
