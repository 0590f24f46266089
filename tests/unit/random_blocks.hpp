// Random use of an arena.
#pragma once

#include "test.hpp"

namespace unit {

// Blocks of at most `most` bytes from allocate(bytes, random number), which may be null: they do not overlap,
// and all come back.
template <typename Arena, typename Allocate>
void use_random_blocks(Arena& arena, std::size_t alignment, std::size_t most, const Allocate& allocate) {
  std::mt19937 random(1);
  std::vector<std::pair<unsigned char*, std::size_t>> held;
  const auto mark = [&](const void* memory) {
    return static_cast<unsigned char>(reinterpret_cast<std::uintptr_t>(memory) / alignment);
  };
  for (int turn = 0; turn < 4000; ++turn) {
    if (!held.empty() && random() % 2) {
      const std::size_t i = random() % held.size();
      auto [memory, bytes] = held[i];
      CHECK(memory[0] == mark(memory) && memory[bytes - 1] == mark(memory));  // no other block overlaps
      arena.free(memory);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const std::size_t bytes = 1 + random() % most;
    auto* const memory = static_cast<unsigned char*>(allocate(bytes, random()));
    if (!memory) continue;
    CHECK(arena.owns(memory) && reinterpret_cast<std::uintptr_t>(memory) % alignment == 0);
    memory[0] = memory[bytes - 1] = mark(memory);
    held.emplace_back(memory, bytes);
  }
  for (auto [memory, bytes] : held) arena.free(memory);
  CHECK(arena.in_use() == 0);
}

}  // namespace unit
