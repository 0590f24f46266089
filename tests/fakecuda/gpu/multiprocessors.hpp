// Resources that the blocks of all kernels on a device share.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace fakecuda {

// Resources of a block or of a multiprocessor.
struct Room {
  std::uint32_t blocks, threads, registers, shared_bytes;
};
inline constexpr Room kOneMultiprocessor{32, 2048, 65536, 227 * 1024};  // as sm_90

// Of a block. A warp gets registers for 32 threads, for each a multiple of 8.
inline Room room_of(std::uint32_t threads, std::uint32_t registers, std::uint32_t shared_bytes) {
  const std::uint32_t in_warps = (threads + 31) / 32 * 32;
  return {1, in_warps, in_warps * ((registers + 7) / 8 * 8), shared_bytes};
}

// Thread-safe.
class Multiprocessors {
 public:
  explicit Multiprocessors(unsigned count = 4) : free_(count, kOneMultiprocessor) {}
  unsigned count() const { return static_cast<unsigned>(free_.size()); }
  // Reserves `block` on the multiprocessor with most free threads and returns its index; -1: none has room.
  int enter(const Room& block);
  void leave(int multiprocessor, const Room& block);

 private:
  std::mutex mutex_;
  std::vector<Room> free_;
};

}  // namespace fakecuda
