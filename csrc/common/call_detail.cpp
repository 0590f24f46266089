#include "common/call_detail.hpp"

namespace mpi_gdr {

std::string CallDetail::str() const {
  std::string all = text;
  if (tensors) all += std::to_string(tensors) + " tensors";
  if (!dtype.empty()) {
    all.append(tensors ? ", from " : "").append(dtype) += '[';
    for (std::uint32_t d = 0; d < dims && d < kDims; ++d)
      all.append(d ? ", " : "").append(std::to_string(sizes[d]));
    all += dims > kDims ? ", ...]" : "]";
  }
  if (!op.empty()) all.append(" op=").append(op);
  if (root >= 0) all.append(" root=").append(std::to_string(root));
  if (message) {
    all.append(send ? " to=" : " from=").append(peer < 0 ? "any" : std::to_string(peer));
    all.append(" tag=").append(std::to_string(tag));
  }
  return all;
}

}  // namespace mpi_gdr
