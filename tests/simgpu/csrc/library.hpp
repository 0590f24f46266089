// The devices as the backend wants them.
#pragma once

#include "device/library.hpp"

namespace simgpu {

mpigdr::DeviceLibrary& device_library();

}  // namespace simgpu
