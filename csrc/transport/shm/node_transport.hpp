// Messages of the user between ranks of one node, through shared memory, for a group whose members are all
// there: Channel::PointToPoint. All else goes to the transport underneath, which it owns.
//
// Each ordered pair of ranks has a ring (ring.hpp). Short messages travel in it. A long one is offered there,
// with its address; the receiver, once it has a receive for it, chooses the way:
//  - if it is in group memory, or the kernel's copy (CMA) reaches all: it copies, and the sender helps if it
//    is in test() meanwhile (two_ended_copy.hpp);
//  - otherwise, and where the kernel refuses a buffer, the sender puts it into the ring piece by piece.
// What finds no room in a ring waits in its sender's lists, in order, for the next test() of any request.
//
// test() of an own request drives all of this: it copies a bounded number of bytes and returns. The buffer of
// an abandoned request is not touched again from here (a peer may still read or write it in group memory or
// by CMA). Threads and errors as in transport.hpp; what a peer has written is checked before it is used.
#pragma once

#include <memory>

#include "transport/shm/node_memory.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr::shm {

// What a rank asks of its Segment for this transport, in a group of `size` ranks.
std::size_t message_bytes(int size);

// Over `inner`, if all ranks of the group have memory for messages; else `inner` itself, on all ranks.
// `kernel_copies`: of this rank's long messages, with Reach::All.
std::unique_ptr<Transport> over_node_memory(std::unique_ptr<Transport> inner,
                                            std::shared_ptr<const NodeMemory> node,
                                            bool kernel_copies = false);

}  // namespace mpi_gdr::shm
