// Stores on their way to memory: bytes that were written and that not everybody sees yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace fakecuda {

class StoreBuffer {
 public:
  void put(const void* to, const void* bytes, std::size_t count);
  // What was put at [at, at + count) is overtaken, and never comes to memory.
  void drop(const void* at, std::size_t count);
  // Writes over `out`, a copy of [from, from + count), what is here of it.
  void lay_over(const void* from, void* out, std::size_t count) const;
  // Both leave nothing here. What `other` has of the same bytes is overtaken; write(to, bytes, count).
  void drain_into(StoreBuffer& other);
  template <typename Write>
  void drain(const Write& write) {
    for (const auto& [begin, word] : words_)
      for (std::size_t i = 0, end; i < kBytes; i = end) {
        for (end = i + 1; end < kBytes && word.here[end] == word.here[i];) ++end;
        if (word.here[i]) write(reinterpret_cast<std::byte*>(begin) + i, &word.bytes[i], end - i);
      }
    words_.clear();
  }
  std::size_t words() const { return words_.size(); }
  bool empty() const { return words_.empty(); }

 private:
  static constexpr std::size_t kBytes = 8;
  struct Word {
    alignas(kBytes) std::array<std::byte, kBytes> bytes;
    std::array<bool, kBytes> here{};
  };
  std::unordered_map<std::uintptr_t, Word> words_;  // by where they begin
};

// Between memory that others use at the same time and a copy of one's own: words of up to 8 bytes as a whole.
void read_memory(const void* from, void* to, std::size_t count);
void write_memory(void* to, const void* from, std::size_t count);

}  // namespace fakecuda
