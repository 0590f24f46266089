#include "gpu/store_buffer.hpp"

#include <algorithm>
#include <cstring>

namespace fakecuda {
namespace {

// Calls f(begin of word, first byte in it, offset in [0, count), bytes) for each word of [at, at + count).
template <std::size_t kBytes, typename F>
void each_word(const void* at, std::size_t count, const F& f) {
  auto address = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t done = 0; done < count;) {
    const std::size_t first = address % kBytes, bytes = std::min(kBytes - first, count - done);
    f(address - first, first, done, bytes);
    address += bytes;
    done += bytes;
  }
}

template <typename Word>
bool move_one(std::byte*& to, const std::byte*& from, std::size_t& count) {
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(Word) == 0; };
  if (count < sizeof(Word) || !aligned(to) || !aligned(from)) return false;
  const Word word = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_RELAXED);
  __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELAXED);
  to += sizeof(Word);
  from += sizeof(Word);
  count -= sizeof(Word);
  return true;
}

void move(void* to_, const void* from_, std::size_t count) {
  auto* to = static_cast<std::byte*>(to_);
  const auto* from = static_cast<const std::byte*>(from_);
  while (count != 0)
    move_one<std::uint64_t>(to, from, count) || move_one<std::uint32_t>(to, from, count) ||
        move_one<std::uint16_t>(to, from, count) || move_one<std::uint8_t>(to, from, count);
}

}  // namespace

void StoreBuffer::put(const void* to, const void* bytes, std::size_t count) {
  each_word<kBytes>(to, count,
                    [&](std::uintptr_t begin, std::size_t first, std::size_t place, std::size_t some) {
                      Word& word = words_[begin];
                      std::memcpy(&word.bytes[first], static_cast<const std::byte*>(bytes) + place, some);
                      std::fill_n(&word.here[first], some, true);
                    });
}

void StoreBuffer::drop(const void* at, std::size_t count) {
  if (empty()) return;
  each_word<kBytes>(at, count, [&](std::uintptr_t begin, std::size_t first, std::size_t, std::size_t some) {
    const auto found = words_.find(begin);
    if (found != words_.end()) std::fill_n(&found->second.here[first], some, false);
  });
}

void StoreBuffer::lay_over(const void* from, void* out, std::size_t count) const {
  if (empty()) return;
  each_word<kBytes>(from, count,
                    [&](std::uintptr_t begin, std::size_t first, std::size_t place, std::size_t some) {
                      const auto found = words_.find(begin);
                      if (found == words_.end()) return;
                      for (std::size_t i = 0; i < some; ++i)
                        if (found->second.here[first + i])
                          static_cast<std::byte*>(out)[place + i] = found->second.bytes[first + i];
                    });
}

void StoreBuffer::drain_into(StoreBuffer& other) {
  for (const auto& [begin, word] : words_)
    for (std::size_t i = 0; i < kBytes; ++i)
      if (word.here[i]) {
        Word& theirs = other.words_[begin];
        theirs.bytes[i] = word.bytes[i];
        theirs.here[i] = true;
      }
  words_.clear();
}

void read_memory(const void* from, void* to, std::size_t count) { move(to, from, count); }
void write_memory(void* to, const void* from, std::size_t count) { move(to, from, count); }

}  // namespace fakecuda
