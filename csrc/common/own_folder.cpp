#include "common/own_folder.hpp"

#include <dlfcn.h>

namespace mpi_gdr {

std::string own_folder() {
  Dl_info info;
  if (!::dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return "";
  const std::string file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}

}  // namespace mpi_gdr
