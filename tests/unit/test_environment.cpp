// Environment variables that mpi-gdr sets for MPI libraries, and those that tell whether a library is
// GPU-aware.
#include "bootstrap/environment.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

constexpr std::optional<bool> kSilent;
constexpr const char* kSwitches[] = {"MV2_USE_CUDA", "MVP_USE_CUDA", "MPICH_GPU_SUPPORT_ENABLED",
                                     "I_MPI_OFFLOAD", "MVP_ENABLE_GPU"};

void set_all(const char* value) {
  for (const char* variable : kSwitches) value ? setenv(variable, value, 1) : unsetenv(variable);
}

}  // namespace

TEST(which_libraries_are_gpu_aware) {
  // `alone`: the result without variables; `own`: the variable that makes it true; null: none.
  const struct {
    const char *version, *device;
    std::optional<bool> answer;
    bool alone;
    const char* own;
  } cases[] = {
      {"MPICH Version:      5.0.2", "ch4:ofi", false, false, nullptr},
      {"MPICH Version:      5.0.2", "ch4:ofi", true, true, nullptr},
      {"MPICH Version:      3.4.1", "ch4:ofi", kSilent, false, nullptr},
      {"Open MPI v5.0.8", "", false, false, nullptr},
      {"Open MPI v5.0.8", "", true, true, nullptr},
      {"MVAPICH2 Version      : 2.3.7", "ch3:mrail", true, false, "MV2_USE_CUDA"},
      {"MVAPICH2 Version      : 2.3.7", "ch3:mrail", kSilent, false, "MV2_USE_CUDA"},
      {"MVAPICH2 Version      : 2.3.7", "ch3:mrail", false, false, nullptr},
      {"MVAPICH Version:      3.0", "ch3:mrail", true, false, "MVP_USE_CUDA"},
      {"MVAPICH Version:      4.0", "ch4:ofi", true, true, nullptr},
      {"MVAPICH Version:      4.0", "ch4:ofi", false, false, nullptr},
      {"MVAPICH-Plus Version: 4.0", "ch4:ucx", true, true, nullptr},
      {"MPI VERSION    : CRAY MPICH version 8.1.27", "", kSilent, false, "MPICH_GPU_SUPPORT_ENABLED"},
      {"MPI VERSION    : CRAY MPICH version 8.1.27", "", false, false, nullptr},
      {"Intel(R) MPI Library 2021.18 for Linux* OS", "", kSilent, false, "I_MPI_OFFLOAD"},
  };
  for (const auto& c : cases) {
    set_all(nullptr);
    CHECK(is_gpu_aware(c.version, c.device, c.answer) == c.alone);
    set_all("1");
    CHECK(is_gpu_aware(c.version, c.device, c.answer) == (c.alone || c.own));
    if (!c.own) continue;
    unsetenv(c.own);
    CHECK(!is_gpu_aware(c.version, c.device, c.answer));
    set_all(nullptr);
    setenv(c.own, "0", 1);
    CHECK(!is_gpu_aware(c.version, c.device, c.answer));
    setenv(c.own, "1", 1);
    CHECK(is_gpu_aware(c.version, c.device, c.answer));
  }
  set_all(nullptr);
}

TEST(mpich_gets_the_variable_for_waiting_streams) {
  set_fabric_environment(/*gpu_aware=*/false);
  CHECK(!getenv("MPIR_CVAR_GPU_HAS_WAIT_KERNEL"));
  setenv("MPICH_GPU_HAS_WAIT_KERNEL", "0", 1);  // an alias
  set_fabric_environment(/*gpu_aware=*/true);
  CHECK(!getenv("MPIR_CVAR_GPU_HAS_WAIT_KERNEL"));
  unsetenv("MPICH_GPU_HAS_WAIT_KERNEL");
  set_fabric_environment(/*gpu_aware=*/true);
  CHECK(getenv("MPIR_CVAR_GPU_HAS_WAIT_KERNEL") == std::string("1"));
}

UNIT_MAIN()
