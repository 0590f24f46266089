#include "device/load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/own_folder.hpp"

namespace mpi_gdr {
namespace {

struct Family {
  std::string_view type;  // torch's device type; names libmpi_gdr_<type>.so
  const char* name;
  Env::Choice Env::* choice;  // MPI_GDR_<name>
};
constexpr Family kFamilies[] = {
    {"cuda", "CUDA", &Env::cuda},
};

LoadedLibrary load(const Family& family, Env::Choice choice) {
  const std::string folder = own_folder(), path = folder + "libmpi_gdr_" + std::string(family.type) + ".so";
  if (choice == Env::Choice::Off) return {nullptr, std::string("MPI_GDR_") + family.name + "=off", path};
  if (folder.empty()) return {nullptr, "the folder of this program is not known", path};
  return load_device_library(path);
}

}  // namespace

LoadedLibrary load_device_library(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0)
    return {nullptr, "not built: there is no " + path + " (`mpi-gdr info` shows why)", path};
  // Never unloaded: its threads, and those of its driver, need their code.
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

const LoadedLibrary* loaded_library(std::string_view type) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::string_view, LoadedLibrary>;
  const auto* const family = std::ranges::find(kFamilies, type, &Family::type);
  if (family == std::end(kFamilies)) return nullptr;
  const Env::Choice choice = family->choice ? Env::get().*family->choice : Env::Choice::Auto;
  std::unique_lock lock(mutex);
  const auto [at, fresh] = all.try_emplace(family->type);
  const LoadedLibrary& loaded = at->second;
  if (fresh) at->second = load(*family, choice);
  lock.unlock();
  std::string why = loaded.why;
  if (choice == Env::Choice::On && (!loaded.devices || loaded.devices->device_count(why) == 0))
    fail(ErrorCode::System, "MPI_GDR_", family->name, "=on, but ", family->name, " cannot be used: ", why);
  return &loaded;
}

}  // namespace mpi_gdr
