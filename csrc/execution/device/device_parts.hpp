// The device programs of one operation: the order and the queues of their submission, and their progress.
//
// Threads: filled and launched on the issuing thread; release_device() on any thread once filled.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "execution/device/device_program.hpp"
#include "execution/device/stream_target.hpp"

namespace mpi_gdr {

struct DevicePart {
  // Which of StreamTarget::queues: phases inside a node and phases between nodes run concurrently on
  // different ones, if there are several.
  enum class On : std::uint8_t { All, First, Others };

  std::shared_ptr<DeviceProgram> program;
  On on = On::All;
  // Indices of earlier parts; -1: none. `follows`: the previous part of its call on the same queues.
  // `depends_on`: a part on the other queues whose end it waits for. With neither it begins behind the
  // caller.
  int follows = -1, depends_on = -1;
};

struct DeviceParts : std::vector<DevicePart> {
  // Launches the parts one after the other, the last one with target.conclude, behind all of them. Throws
  // what the device throws, after end_early() of the part that failed and of those not launched.
  void launch(const StreamTarget& target) const;
  // DeviceProgram::release_device() of all.
  bool release_device() const noexcept;
};

// Advances all parts; the progress role may destroy it before launch() has returned.
std::unique_ptr<Execution> progress_of(std::shared_ptr<const DeviceParts> parts);

}  // namespace mpi_gdr
