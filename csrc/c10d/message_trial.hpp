// Tests whether messages of device memory progress while a stream waits and memory is freed.
#pragma once

#include <memory>

#include "c10d/device_streams.hpp"
#include "engine/group.hpp"

namespace mpi_gdr::torch_binding {

// An MPI library that takes device addresses calls the device's runtime on the thread that calls MPI. If that
// call waits for a stream, and the stream for a message, both hang. Even a call without a stream may: another
// thread that frees memory waits for the whole device with the runtime's lock.
//
// So each rank sends `bytes` to the next one while a stream waits and a thread allocates and frees.
class MessageTrial {
 public:
  // One size per MPI protocol: in the header, eager, rendezvous, and in pieces or by CUDA IPC.
  static constexpr std::size_t kSizes[] = {8, 64 << 10, 1 << 20, 16 << 20};
  // Allocates; waits for the current stream.
  MessageTrial(DeviceStreams& on, int rank, int size, std::size_t bytes);
  // Blocks for at most 10 s, on all ranks at about the same time, while no stream waits for a message. False
  // if the message has not arrived after 2 s, or the device could not be kept busy. Throws as operations do;
  // the group has failed then.
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
