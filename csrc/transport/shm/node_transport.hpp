// Messages of the user's between ranks of one node, through shared memory, for a group whose members are all
// there: Channel::PointToPoint. All else goes to the transport underneath, which it owns.
//
// Each ordered pair of ranks has a ring (ring.hpp). Short messages travel in it at once. Of a long one first
// an offer does, with where its data is; the receiver, once it has a receive for it, decides alone how it
// gets them:
//  - they are in group memory, or the kernel's copy (CMA) reaches all: it begins to copy, tells the sender
//    where to, who helps if it happens to be here (two_ended_copy.hpp), and tells it when all is there;
//  - otherwise, and where the kernel refuses one of the buffers, it asks for them, and the sender puts them
//    into the ring piece by piece, while the receiver takes them out.
// What finds no room in a ring waits in its sender's lists, in order, for the next test() of any request.
//
// test() of an own request drives all of this: it copies a bounded number of bytes and returns. A caller that
// has seen test() return true has nothing left to do. An abandoned request is in no list any more, and its
// buffer is not touched again from here (a peer may still read what was sent, or write to what was to be
// received, in group memory or by CMA). Threads and errors as in transport.hpp; what a peer has written is
// checked before it is used.
#pragma once

#include <memory>

#include "transport/shm/node_memory.hpp"
#include "transport/transport.hpp"

namespace mpi_gdr::shm {

// What a rank asks of its Segment for this transport, in a group of `size` ranks.
std::size_t message_bytes(int size);

// Over `inner`, if all ranks of the group have given memory for messages; else `inner` itself, on all ranks.
// `kernel_copies`: long messages by CMA, where Reach::All; each rank for itself.
std::unique_ptr<Transport> over_node_memory(std::unique_ptr<Transport> inner,
                                            std::shared_ptr<const NodeMemory> node,
                                            bool kernel_copies = false);

}  // namespace mpi_gdr::shm
