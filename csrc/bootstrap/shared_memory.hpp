// The file that MPICH keeps in /dev/shm until MPI_Finalize, and that a killed job leaves behind.
#pragma once

namespace mpigdr {

// Removes the names of MPICH's shared-memory files that this process has mapped; the memory stays. For when
// all ranks of the node have attached, or when this process is about to end without them. Files not mapped
// here are not touched.
void unlink_mpich_shared_memory();

}  // namespace mpigdr
