// Kernels of one thread that wait for flags and write them where the driver cannot (driver.hpp): it is too
// old, or the value depends on the replay. And the kernel of DeviceQueue::resolve().
#pragma once

#include <cstdint>

#include "device/cuda/gpu_api.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr::gpu {

// As DeviceQueue's. A waiting kernel occupies a multiprocessor's slot.
void launch_wait(int device, Stream stream, const Flag* flag, std::uint64_t at_least, const Replays& replays);
void launch_write(int device, Stream stream, Flag* flag, std::uint64_t value, const Replays& replays);
void launch_count_replay(int device, Stream stream, const Replays& replays);
void launch_resolve(int device, Stream stream, const ResolveArgs& args);

}  // namespace mpi_gdr::gpu
