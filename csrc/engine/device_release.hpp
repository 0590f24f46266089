// What a device waits for when the operation has failed.
#pragma once

#include "engine/operation.hpp"

namespace mpigdr {

// Lets the device go on with an operation that has ended with an error, as often as it takes: other ranks may
// overwrite what was set for the device with what they have come to. Does not wait for it. Any thread, also
// one beside another that does the same.
void let_the_device_go_on(const OperationPtr& operation) noexcept;

}  // namespace mpigdr
