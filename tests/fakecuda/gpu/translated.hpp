// Included by each translated PTX file (ptx.py).
#pragma once

#include "gpu/instructions.hpp"
#include "gpu/memory.hpp"

namespace fakecuda {

// For a kernel that ptxas has not compiled: as many as let a multiprocessor be full.
inline constexpr std::uint32_t kRegisters = kOneMultiprocessor.registers / kOneMultiprocessor.threads;

}  // namespace fakecuda
