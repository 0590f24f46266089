// The device programs of one operation: in which order they are submitted, and to which queues. Used by the
// issuing thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/device_program.hpp"
#include "engine/stream_target.hpp"

namespace mpigdr {

struct DevicePart {
  // Of StreamTarget::queues: what is inside a node and what is between the nodes run beside each other on
  // different ones, if there are several.
  enum class On : std::uint8_t { All, First, Others };

  std::shared_ptr<DeviceProgram> program;
  On on = On::All;
  // Parts before it behind whose ends it begins: the last one of its call on the same queues, and one on the
  // others. Indices, -1: none; without either it begins behind the caller.
  int follows = -1, behind = -1;
};

// Launches the parts one after the other, the last one with target.conclude, which is behind all of them.
// Throws what the device throws, then some may not have been launched.
void launch(const std::vector<DevicePart>& parts, const StreamTarget& target);

}  // namespace mpigdr
