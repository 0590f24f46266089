#include "execution/device/gate.hpp"

namespace mpi_gdr {

// In the core only: an inline variable would be a separate one in each library.
std::atomic<int> Gate::holding_{0};

}  // namespace mpi_gdr
