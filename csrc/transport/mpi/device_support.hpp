// Whether the library takes addresses of a GPU's memory ("GPU-aware", "CUDA-aware").
//
// Only a definite answer counts: a wrong guess is a crash inside the library. None of the questions is in
// MPI 3.1; each is looked up in the library that was loaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace mpigdr::mpi {

struct DeviceSupport {
  bool cuda = false;
  std::string why;  // who said so: "MPIX_GPU_query_support"
};

// After initialize(). Any thread.
DeviceSupport device_support();

// Sends one message from `from` to `to`, memory of this process's device, to this rank itself. True if it
// arrived within `patience`; if not, calls `unblock` and waits for its end, which the caller thereby makes
// possible. Blocks; not while operations run.
bool moves_device_memory(const void* from, void* to, std::size_t bytes, std::chrono::milliseconds patience,
                         const std::function<void()>& unblock);

}  // namespace mpigdr::mpi
