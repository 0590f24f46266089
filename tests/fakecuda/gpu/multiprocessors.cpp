#include "gpu/multiprocessors.hpp"

namespace fakecuda {

int Multiprocessors::enter(const Room& block) {
  const std::lock_guard lock(mutex_);
  int best = -1;
  for (unsigned i = 0; i < count(); ++i) {
    const Room& free = free_[i];
    if (free.blocks >= block.blocks && free.threads >= block.threads && free.registers >= block.registers &&
        free.shared_bytes >= block.shared_bytes && (best < 0 || free.threads > free_[best].threads))
      best = static_cast<int>(i);
  }
  if (best >= 0) {
    Room& taken = free_[best];
    taken = {taken.blocks - block.blocks, taken.threads - block.threads, taken.registers - block.registers,
             taken.shared_bytes - block.shared_bytes};
  }
  return best;
}

void Multiprocessors::leave(int multiprocessor, const Room& block) {
  const std::lock_guard lock(mutex_);
  Room& left = free_[multiprocessor];
  left = {left.blocks + block.blocks, left.threads + block.threads, left.registers + block.registers,
          left.shared_bytes + block.shared_bytes};
}

}  // namespace fakecuda
