// What a translated file of PTX (ptx.py) includes.
#pragma once

#include "gpu/instructions.hpp"
#include "gpu/memory.hpp"

namespace fakecuda {

// What ptxas gives a thread is not in the PTX: as many as let a multiprocessor be full.
inline constexpr std::uint32_t kRegisters = kOneMultiprocessor.registers / kOneMultiprocessor.threads;

}  // namespace fakecuda
