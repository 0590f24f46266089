// Whether the library takes addresses of a GPU's memory ("GPU-aware", "CUDA-aware").
//
// Only a definite answer counts: a wrong guess is a crash inside the library. None of the questions is in
// MPI 3.1; each is looked up in the library that was loaded.
#pragma once

#include <string>

namespace mpigdr::mpi {

struct DeviceSupport {
  bool cuda = false;
  std::string why;  // who said so: "MPIX_GPU_query_support"
};

// After initialize(). Any thread.
DeviceSupport device_support();

}  // namespace mpigdr::mpi
