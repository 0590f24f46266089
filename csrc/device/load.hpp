// Loads the shared library of a family of devices, from the folder of the file that contains this code, with
// the first tensor of such a device: most processes have none.
#pragma once

#include <string>
#include <string_view>

#include "device/library.hpp"

namespace mpi_gdr {

struct LoadedLibrary {
  DeviceLibrary* devices = nullptr;  // null: `why` has the reason
  std::string why;
  std::string path;  // where it is, or would be
};

// The library of devices of this type, such as "cuda"; null: the type is unknown. The first call loads it,
// for the life of the process; thread-safe. With MPI_GDR_CUDA=off it is never loaded. With MPI_GDR_CUDA=on
// each call throws System where there is no library or no device; otherwise no call throws.
const LoadedLibrary* loaded_library(std::string_view type);

// For tests: this library serves devices of this type from now on.
void use_device_library(const std::string& type, DeviceLibrary* library);

// For tests: loads this file. Throws nothing.
LoadedLibrary load_device_library(const std::string& path);

}  // namespace mpi_gdr
