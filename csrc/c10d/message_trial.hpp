// Tests whether messages of device memory always move.
#pragma once

#include <memory>

#include "c10d/device_streams.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

// An MPI library that takes device addresses calls the device's runtime on the thread that calls MPI. If that
// call waits for a stream, and the stream for a message, both hang. Even a call without a stream may: another
// thread that frees memory waits for the whole device with the runtime's lock.
//
// So each rank sends 1 MiB to the next one while a stream waits and a thread allocates and frees.
class MessageTrial {
 public:
  MessageTrial(DeviceStreams& on, int rank, int size);  // allocates; waits for the current stream
  // Blocks, on all ranks at about the same time, while no stream waits for a message. False if the message
  // has not arrived after 2 s, or the device could not be kept busy. Throws as operations do.
  bool run(Group& group);

 private:
  DeviceStreams& on_;
  const int before_, after_;
  struct Memory {
    at::Tensor sent, received;
  };
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Flag[]> flag_;
};

}  // namespace mpi_gdr::torch_binding
