// Kernels of one thread that wait for a flag and write one where the driver cannot (driver.hpp), because it
// is an old one, or because the value is known only when the device comes to it; and the one that looks where
// others have their buffers.
#pragma once

#include <cstdint>

#include "device/cuda/gpu_api.hpp"
#include "device/resolved.hpp"

namespace mpi_gdr::gpu {

// As DriverDevice::wait_word and write_word. The thread that polls keeps a place on the device until the flag
// comes.
template <typename Word>
void launch_wait(int device, Stream stream, const Word* word, Word at_least);
template <typename Word>
void launch_write(int device, Stream stream, Word* word, Word value);
// As DeviceQueue's.
void launch_count_replay(int device, Stream stream, const Replays& replays);
void launch_wait_replay(int device, Stream stream, const Flag64* flag, const Replays& replays,
                        std::uint32_t ago, std::uint32_t number);
void launch_write_replay(int device, Stream stream, Flag64* flag, const Replays& replays,
                         std::uint32_t number);

// DeviceQueue::resolve().
void launch_resolve(int device, Stream stream, const ResolveArgs& args);

}  // namespace mpi_gdr::gpu
