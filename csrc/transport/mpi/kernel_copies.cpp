// Disables MPICH's use of process_vm_readv on nodes where the kernel refuses it (seccomp, yama, namespaces).
// MPICH 5 does not test the call, and messages that use it fail.
#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bootstrap/environment.hpp"
#include "common/log.hpp"
#include "common/memory_file.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

struct Sample {
  std::int64_t pid;
  std::uint64_t address, value;
};

// Compares the value, because in another PID namespace the pid may name another process.
bool can_read(const Sample& sample) {
  std::uint64_t value = 0;
  const iovec local{&value, sizeof value}, remote{reinterpret_cast<void*>(sample.address), sizeof value};
  return ::process_vm_readv(static_cast<pid_t>(sample.pid), &local, 1, &remote, 1, 0) == sizeof value &&
         value == sample.value;
}

// False: no such variable, or too late to set it.
bool set_control(const char* name, int value) {
  int provided = 0, index = 0, count = 0;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return false;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  const bool found = MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
                     MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS;
  const bool set = found && count == 1 && MPI_T_cvar_write(handle, &value) == MPI_SUCCESS;
  if (found) MPI_T_cvar_handle_free(&handle);
  MPI_T_finalize();
  return set;
}

}  // namespace

void agree_on_kernel_copies(MPI_Comm node) {
  int size = 0;
  check(MPI_Comm_size(node, &size), "MPI_Comm_size");
  static const std::uint64_t value = draw_nonce();
  const Sample mine{::getpid(), reinterpret_cast<std::uintptr_t>(&value), value};
  std::vector<Sample> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, node),
        "MPI_Allgather");
  // All ranks of a node must decide alike: MPICH loses a message if only its receiver copies.
  int any[] = {!std::all_of(all.begin(), all.end(), can_read), control_is_set("CH4_CMA_ENABLE")};
  check(MPI_Allreduce(MPI_IN_PLACE, any, 2, MPI_INT, MPI_MAX, node), "MPI_Allreduce");
  const bool refused = any[0] != 0, chosen = any[1] != 0;  // a rank cannot copy; a user has decided
  if (!refused || chosen || !set_control("MPIR_CVAR_CH4_CMA_ENABLE", 0)) return;
  log(LogLevel::Info, "INIT",
      "the kernel refuses copies between ranks of this host: MPI copies through shared memory");
}

}  // namespace mpi_gdr::mpi
