// The torchrun agent that started this process, which is not always its parent: wrappers (numactl, a shell)
// stand between, and a process whose parent has ended gets another one.
//
// Stateless; thread-safe.
#pragma once

#include <optional>

#include "bootstrap/process_id.hpp"

namespace mpigdr {

// Nothing: torchrun did not start this process, or its agent cannot be seen from here. Ask while it is there.
std::optional<ProcessId> torchrun_agent();

}  // namespace mpigdr
