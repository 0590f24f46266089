#include "library.hpp"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>

namespace simgpu {

mpigdr::DeviceLibrary& device_library() {
  static mpigdr::DeviceLibrary* const library = [] {
    Dl_info here;
    TORCH_CHECK(dladdr(reinterpret_cast<void*>(&device_library), &here), "simgpu: where is it?");
    const std::string file = here.dli_fname,
                      path = file.substr(0, file.rfind('/') + 1) + "libmpi_gdr_cuda.so";
    void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    TORCH_CHECK(loaded, dlerror());
    const auto function =
        reinterpret_cast<mpigdr::DeviceLibraryFunction>(dlsym(loaded, mpigdr::kDeviceLibrarySymbol));
    TORCH_CHECK(function, dlerror());
    return function(mpigdr::kDeviceInterface);
  }();
  TORCH_CHECK(library, "simgpu: libmpi_gdr_cuda.so has another interface");
  return *library;
}

}  // namespace simgpu
