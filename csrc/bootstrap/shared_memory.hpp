// The file that MPICH keeps in /dev/shm until MPI_Finalize; a killed job leaves it behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

// Bytes that can still be written to /dev/shm. Nothing: unknown.
std::optional<std::uint64_t> free_shared_memory();

// Why shared memory certainly does not suffice, which would raise SIGBUS in MPICH; or "". `free`: bytes by
// rank; `library`: first line of MPI's version text; `started`: other ranks may have allocated their part.
std::string explain_shared_memory_shortage(const std::vector<int>& node_of_rank,
                                           const std::vector<std::optional<std::uint64_t>>& free,
                                           const std::string& library, bool started = false);

// A warning if `free` bytes are few for this many ranks of a host; or "". `started` as above.
std::string warning_of_shared_memory(std::uint64_t free, std::size_t ranks, bool started);

// Why MPICH waits in vain for other ranks of this host, or "". Certain if its file is mapped, no other rank
// is visible, and /dev/shm is as new as the PID namespace. For ranks whose launcher_pid() is 0.
std::string explain_unshared_memory();

// Unlinks MPICH's files that this process maps; the memory stays. Call when all ranks have attached, or
// before an exit.
void unlink_mpich_shared_memory();

}  // namespace mpi_gdr
