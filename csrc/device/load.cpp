#include "device/load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
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

struct Registry {
  std::mutex mutex;
  std::map<std::string, LoadedLibrary, std::less<>> all;  // by type
};
Registry& registry = *new Registry;

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
  const auto* const family = std::ranges::find(kFamilies, type, &Family::type);
  const bool known = family != std::end(kFamilies);
  const Env::Choice choice = known ? Env::get().*family->choice : Env::Choice::Auto;
  std::unique_lock lock(registry.mutex);
  auto at = registry.all.find(type);
  if (at == registry.all.end()) {
    if (!known) return nullptr;
    at = registry.all.emplace(type, load(*family, choice)).first;
    if (at->second.devices)
      log(LogLevel::Info, "INIT", family->name, " tensors: on streams, by ", at->second.path);
  }
  const LoadedLibrary& loaded = at->second;
  lock.unlock();
  std::string why = loaded.why;
  if (choice == Env::Choice::On && (!loaded.devices || loaded.devices->device_count(why) == 0))
    fail(ErrorCode::System, "MPI_GDR_", family->name, "=on, but ", family->name, " cannot be used: ", why);
  return &loaded;
}

void use_device_library(const std::string& type, DeviceLibrary* library) {
  const std::lock_guard lock(registry.mutex);
  registry.all[type] = {library, "", ""};
}

}  // namespace mpi_gdr
