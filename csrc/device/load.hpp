// Finds the shared library of a family of devices beside the file that contains this code, and loads it: when
// the first tensor of such a device comes, because most processes meet none.
#pragma once

#include <string>
#include <string_view>

#include "device/library.hpp"

namespace mpi_gdr {

struct LoadedLibrary {
  DeviceLibrary* devices = nullptr;  // null: there is none, and `why` says so
  std::string why;
  std::string path;  // where it is, or would be
};

// That of devices of this type, "cuda"; null: no family of ours is called so. Loaded by the first call, for
// the life of the process; thread-safe. With MPI_GDR_CUDA=off it is never loaded. With MPI_GDR_CUDA=on it
// throws Error(System), each time, where there is no library or no device; otherwise it throws nothing, and a
// library may well find no device.
const LoadedLibrary* loaded_library(std::string_view type);

// For tests: loads this file. Throws nothing.
LoadedLibrary load_device_library(const std::string& path);

}  // namespace mpi_gdr
