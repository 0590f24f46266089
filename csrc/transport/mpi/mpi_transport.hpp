// Transport over MPI: one group of ranks with communicators of its own, made by MpiNetwork::make_group().
//
// Each group owns the communicator that MPI_Comm_create_group returns, which carries no traffic of ours and
// is what handle() lends to mpi4py, and a duplicate of it per channel. All are made at once, so that no later
// call has to be collective. Tools see their names: "mpi-gdr group 0", "mpi-gdr group 0 collective"; MPI
// keeps them on this rank alone. Threads and errors as in transport.hpp. close() leaks the communicators
// after a failure (an error, an abandoned request, here or in another group), since freeing would wait for
// peers that may be gone.
#pragma once

#include "transport/transport.hpp"

namespace mpigdr::mpi {

// Fortran handle of the group's own communicator, for mpi4py: `MPI.Comm.f2py(handle)`. Valid until close().
// Throws InvalidUsage for a transport of another network.
int handle(const Transport& transport);

}  // namespace mpigdr::mpi
