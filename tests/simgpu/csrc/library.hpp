// The library of CUDA devices for the backend: the object files that ship, on the software CUDA, beside this
// library.
#pragma once

#include "device/library.hpp"

namespace simgpu {

mpigdr::DeviceLibrary& device_library();

}  // namespace simgpu
