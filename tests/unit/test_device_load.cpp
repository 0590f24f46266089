// Loading a device library that is missing, invalid or valid.
#include "device/load.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using unit::contains;

TEST(no_library_is_no_error) {
  const LoadedLibrary loaded = load_device_library("/nowhere/libmpi_gdr_cuda.so");
  CHECK(loaded.devices == nullptr);
  CHECK(loaded.path == "/nowhere/libmpi_gdr_cuda.so");
  CHECK_CONTAINS(loaded.why, "not built: there is no /nowhere/libmpi_gdr_cuda.so");
}

TEST(a_file_that_is_no_library) {
  const unit::Folder folder;
  const std::string path = folder.path + "/library.so";
  std::ofstream(path) << "no ELF\n";
  const LoadedLibrary loaded = load_device_library(path);
  CHECK(loaded.devices == nullptr);
  CHECK_CONTAINS(loaded.why, path);
}

TEST(a_library_of_something_else) {
  const LoadedLibrary loaded =
      load_device_library("/proc/self/exe");  // cannot be opened, or has no such symbol
  CHECK(loaded.devices == nullptr && !loaded.why.empty());
}

// The library throws with its own copy of the exception's code, and its errors must still be caught as ours.
TEST(errors_of_the_library_beside_this_program) {
  char program[4096] = {};
  CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  const std::string path = program;
  const LoadedLibrary loaded =
      load_device_library(path.substr(0, path.rfind('/') + 1) + "libmpi_gdr_cuda.so");
  if (!loaded.devices) return static_cast<void>(std::printf("skipped: %s\n", loaded.why.c_str()));
  CHECK(loaded.devices->name() == std::string("cuda"));
  CHECK_CONTAINS(loaded.devices->built(), "PTX");
  std::string why;
  const int count = loaded.devices->device_count(why);
  CHECK(count > 0 || !why.empty());
  CHECK_THROWS(loaded.devices->device(count), Error, "device=");
  CHECK_THROWS(loaded.devices->describe(-1), Error, "device=-1");
}

// MPI_GDR_CUDA=off holds for the process, whether or not there is a library.
TEST(off_is_never_loaded) {
  setenv("MPI_GDR_CUDA", "off", 1);
  const LoadedLibrary& loaded = *loaded_library("cuda");
  CHECK(loaded.devices == nullptr && loaded.why == "MPI_GDR_CUDA=off");
  CHECK(&loaded == loaded_library("cuda"));
  CHECK(loaded_library("cpu") == nullptr);
}

UNIT_MAIN()
