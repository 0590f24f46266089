// A store buffer: bytes written but not yet visible to all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace fakecuda {

class StoreBuffer {
 public:
  void put(const void* to, const void* bytes, std::size_t count);
  // Discards stores to [at, at + count): later ones supersede them.
  void drop(const void* at, std::size_t count);
  // Overlays stores to [from, from + count) on `out`, a copy of it.
  void lay_over(const void* from, void* out, std::size_t count) const;
  // Both empty the buffer. Bytes supersede those of `other`; calls write(to, bytes, count).
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
  std::unordered_map<std::uintptr_t, Word> words_;  // by address
};

// Between memory in concurrent use and a private copy: aligned words of up to 8 bytes are atomic.
void read_memory(const void* from, void* to, std::size_t count);
void write_memory(void* to, const void* from, std::size_t count);

}  // namespace fakecuda
