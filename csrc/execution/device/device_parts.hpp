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
  // Which of StreamTarget::queues. If there are several, phases inside a node run on the first one, and
  // phases between nodes concurrently on the others.
  enum class On : std::uint8_t { All, First, Others };

  std::shared_ptr<DeviceProgram> program;
  On on = On::All;
  // Indices of earlier parts; -1: none. `follows`: the previous part of the same call on the same queues.
  // `depends_on`: a part on other queues, which must end first. A part with neither begins after the earlier
  // work of StreamTarget::caller.
  int follows = -1, depends_on = -1;
};

struct DeviceParts : std::vector<DevicePart> {
  // Launches the parts in order; the last one calls target.conclude(), behind all of them. If the device
  // throws, calls end_early() of the part that failed and of those not launched, and rethrows.
  void launch(const StreamTarget& target) const;
  // Calls DeviceProgram::release_device() of every part; true: each returned true.
  bool release_device() const noexcept;
};

// Returns an Execution that advances all parts. The progress role may destroy it before launch() returns.
std::unique_ptr<Execution> progress_of(std::shared_ptr<const DeviceParts> parts);

}  // namespace mpi_gdr
