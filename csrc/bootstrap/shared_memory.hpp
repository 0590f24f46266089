// The file that MPICH keeps in /dev/shm until MPI_Finalize, and that a killed job leaves behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

// Bytes that may still be written to /dev/shm. Nothing where that cannot be asked.
std::optional<std::uint64_t> free_shared_memory();

// Why MPI cannot start on these ranks for want of shared memory, or "": MPICH would end them with SIGBUS.
// Only where it is certain. `node_of_rank` as of number_nodes(); `free` of each rank in bytes; `library`:
// first line of its version; `started`: other ranks may have taken their part of it already.
std::string objection_to_shared_memory(const std::vector<int>& node_of_rank,
                                       const std::vector<std::optional<std::uint64_t>>& free,
                                       const std::string& library, bool started = false);

// What is to be said where `free` bytes are less than the libraries would rather have on a host with so many
// ranks of the job, or "". `started` as above.
std::string warning_of_shared_memory(std::uint64_t free, std::size_t ranks, bool started);

// Why MPICH waits in this process for ranks of its host that cannot come, or "". Only where it is certain:
// its file is mapped, no other rank is in this PID namespace, and /dev/shm is as new as that. For a rank
// whose launcher_pid() (process_id.hpp) is 0.
std::string unshared_memory();

// Removes the names of MPICH's shared-memory files that this process has mapped; the memory stays. For when
// all ranks of the node have attached, or when this process is about to end without them.
void unlink_mpich_shared_memory();

}  // namespace mpi_gdr
