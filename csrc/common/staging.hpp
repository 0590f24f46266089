// Staging memory of a rank per slot, in bytes; builders cut schedules to it.
#pragma once

#include <cstddef>

namespace mpi_gdr {

inline constexpr std::size_t kHostStagingBytes = 256 * 1024;
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{16} << 20;

}  // namespace mpi_gdr
