// User messages (Channel::PointToPoint) through shared memory, for a group whose members are all on one node.
// All else goes to the underlying transport, which it owns.
//
// Each ordered pair of ranks has a ring (ring.hpp). Short messages travel in it. A long one is offered there
// with its address. When a receive matches it, the receiver copies it if group memory or the kernel's copy
// (CMA) reaches it, while the sender helps (two_ended_copy.hpp); else the sender puts it into the ring piece
// by piece. Messages without room wait with their sender, in order, for the next test() of any request.
//
// test() of a request of this transport drives all of this: it copies a bounded number of bytes and returns.
// This rank does not touch an abandoned buffer again, but a peer may. Peers' data is checked before use.
#pragma once

#include <memory>

#include "transport/shm/node_memory.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr::shm {

// Bytes for messages in a rank's Segment, in a group of `size` ranks.
std::size_t message_bytes(int size);

// Over `inner`, if all ranks of the group have memory for messages; else `inner` itself, on all ranks.
// `kernel_copies`: for this rank's long messages, with Reach::All.
std::unique_ptr<Transport> over_node_memory(std::unique_ptr<Transport> inner,
                                            std::shared_ptr<const NodeMemory> node,
                                            bool kernel_copies = false);

}  // namespace mpi_gdr::shm
