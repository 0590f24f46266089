// Whether messages of a device's memory move at all times, tried.
#pragma once

#include <memory>

#include "c10d/device_streams.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

// An MPI library that takes addresses of a device calls the device's runtime by itself, on the thread that
// calls MPI. If such a call waits for a stream, and that stream for a message, neither ever ends. It need not
// ask for a stream: another thread that frees memory waits for the whole device, and holds the lock that
// every call needs.
//
// So each rank of the group sends `bytes` to the next one while a stream waits for run() and another thread
// allocates and frees.
class MessageTrial {
 public:
  // By protocols of their own: inside the header, eagerly, by rendezvous, in pieces or by CUDA IPC.
  static constexpr std::size_t kSizes[] = {8, 64 << 10, 1 << 20, 16 << 20};
  // Takes what it needs, and waits for the current stream. Throws where that cannot be.
  MessageTrial(DeviceStreams& on, int rank, int size, std::size_t bytes);
  // False if what the rank before has sent is not there after 2 s, or if the rest of this rank could not be
  // kept busy. On all ranks of the group at about the same time, not while a stream waits for a message.
  // Blocks, for 10 s at most. Throws what an operation of the group throws: it has failed then.
  bool run(Group& group);

 private:
  DeviceStreams& on_;
  const int before_, after_;
  const std::size_t bytes_;
  struct Memory {
    at::Tensor sent, received;
  };
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Flag[]> flag_;
};

}  // namespace mpi_gdr::torch_binding
