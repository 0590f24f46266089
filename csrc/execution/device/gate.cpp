#include "execution/device/gate.hpp"

namespace mpi_gdr {

// In the core alone: an inline variable would be another one in each library that includes the header.
std::atomic<int> Gate::holding_{0};

}  // namespace mpi_gdr
