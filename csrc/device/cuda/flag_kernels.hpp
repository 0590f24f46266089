// Kernels of one thread that wait for a flag and write one where the driver cannot (driver.hpp), because it
// is an old one or because the value depends on the replay; and the one that looks where others have their
// buffers.
#pragma once

#include <cstdint>

#include "device/cuda/gpu_api.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr::gpu {

// As DeviceQueue's. The thread that polls keeps a place on the device until the flag comes.
void launch_wait(int device, Stream stream, const Flag* flag, std::uint64_t at_least, const Replays& replays);
void launch_write(int device, Stream stream, Flag* flag, std::uint64_t value, const Replays& replays);
void launch_count_replay(int device, Stream stream, const Replays& replays);
void launch_resolve(int device, Stream stream, const ResolveArgs& args);

}  // namespace mpi_gdr::gpu
