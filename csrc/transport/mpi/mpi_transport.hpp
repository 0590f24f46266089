// Transport over MPI: one group of ranks with communicators of its own.
//
// Each group owns the communicator that MPI_Comm_create_group returns, which carries no traffic of ours and
// is what mpi_handle() lends to mpi4py, and a duplicate of it per channel. All are made here, at once, so
// that no later call has to be collective. Threads and errors as in transport.hpp; groups may be made by
// several threads at a time, in any order. close() leaks the communicators after a failure (an error, an
// abandoned request, here or in another group), since freeing would wait for peers that may be gone.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace mpigdr::mpi {

class GroupTransport : public Transport {
 public:
  // Fortran handle of the group's own communicator, for mpi4py: `MPI.Comm.f2py(handle)`. Valid until close().
  virtual int mpi_handle() const = 0;
};

// Collective over the members, `world_ranks` in the order of their ranks in the group (torch's global ranks).
// Blocks: the caller has met the other members in a rendezvous before. `tag`, 0..32767, is equal on the
// members and differs between groups that are made at the same time. `accelerator_channel` adds
// Channel::Accelerator; without it that channel throws. Ends the process with a message if MPI does not
// return within `timeout`. `name`: of the group, for what tools show of its communicators ("mpi-gdr group 0",
// "mpi-gdr group 0 collective"); MPI keeps it on this rank alone.
std::unique_ptr<GroupTransport> make_group(const std::vector<int>& world_ranks, int tag,
                                           bool accelerator_channel,
                                           std::chrono::milliseconds timeout = std::chrono::minutes(5),
                                           const std::string& name = "");

}  // namespace mpigdr::mpi
