#include "device/load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/own_folder.hpp"

namespace mpigdr {
namespace {

LoadedLibrary load_cuda() {
  const std::string folder = own_folder(), path = folder + "libmpi_gdr_cuda.so";
  if (Env::get().cuda == Env::Choice::Off) return {nullptr, "MPI_GDR_CUDA=off", path};
  if (folder.empty()) return {nullptr, "the folder of this program is not known", path};
  return load_device_library(path);
}

}  // namespace

LoadedLibrary load_device_library(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return {nullptr, "not built: there is no " + path, path};
  // Never unloaded: its threads and its driver's would run on without their code.
  void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!file) {
    const char* const text = dlerror();
    return {nullptr, text ? text : path + " cannot be loaded", path};
  }
  const auto function = reinterpret_cast<DeviceLibraryFunction>(dlsym(file, kDeviceLibrarySymbol));
  if (!function) return {nullptr, path + " has no " + kDeviceLibrarySymbol, path};
  DeviceLibrary* const library = function(kDeviceInterface);
  if (!library) return {nullptr, path + " was built with another release of this package", path};
  return {library, "", path};
}

const LoadedLibrary& cuda_library() {
  static const LoadedLibrary loaded = load_cuda();
  if (Env::get().cuda == Env::Choice::On) {
    std::string why = loaded.why;
    if (!loaded.devices || loaded.devices->device_count(why) == 0)
      fail(ErrorCode::System, "MPI_GDR_CUDA=on, but CUDA cannot be used: ", why);
  }
  return loaded;
}

}  // namespace mpigdr
