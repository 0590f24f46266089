// The device programs of one operation: in which order they are submitted, to which queues, and how far they
// are.
//
// Threads: filled and launched on the issuing thread; release_device() by anyone once all are there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "execution/device/device_program.hpp"
#include "execution/device/stream_target.hpp"

namespace mpi_gdr {

struct DevicePart {
  // Of StreamTarget::queues: what is inside a node and what is between the nodes run beside each other on
  // different ones, if there are several.
  enum class On : std::uint8_t { All, First, Others };

  std::shared_ptr<DeviceProgram> program;
  On on = On::All;
  // Parts before it, by index; -1: none. `follows`: the one of its call that is on the same queues, so that
  // it begins behind that one anyway. `depends_on`: one on the other queues, behind whose end it has to
  // begin. With neither it begins behind the caller.
  int follows = -1, depends_on = -1;
};

struct DeviceParts : std::vector<DevicePart> {
  // Launches the parts one after the other, the last one with target.conclude, which is behind all of them.
  // Throws what the device throws: then the part that was refused and those that were not launched any more
  // have had a call of end_early().
  void launch(const StreamTarget& target) const;
  // DeviceProgram::release_device() of all.
  bool release_device() const noexcept;
};

// The operation's part: the progress role may drop it before launch() has returned.
std::unique_ptr<Execution> progress_of(std::shared_ptr<const DeviceParts> parts);

}  // namespace mpi_gdr
