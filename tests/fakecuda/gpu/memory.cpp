#include "gpu/memory.hpp"

namespace fakecuda {

const MemoryRules* memory_rules = nullptr;

void set_memory_rules(const MemoryRules* rules) { memory_rules = rules; }

}  // namespace fakecuda
