// A kernel's thread, as the translated code sees it. It runs until it suspends itself: at its end, at a
// barrier, at a possible poll, or when its turn is over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/fiber.hpp"
#include "gpu/kernel.hpp"

namespace fakecuda {

struct BlockStores;  // weak_memory.hpp

class Thread {
 public:
  enum class Stop { AtBarrier, Polls, TurnIsOver, Ended };

  Thread(const Kernel& kernel, const std::byte* params, std::byte* shared, std::uint32_t tid,
         std::uint32_t ntid, std::uint32_t ctaid, std::uint32_t nctaid, BlockStores* stores)
      : kernel(kernel),
        params(params),
        shared(shared),
        stores(stores),
        tid(tid),
        ntid(ntid),
        ctaid(ctaid),
        nctaid(nctaid) {}

  // For Launch. Runs for at most `accesses` accesses and returns why it stopped.
  Stop run(std::uint32_t accesses);

  // ---- for the kernel ----

  // Before an instruction that a mutant may skip: its number among its kind in its PTX file.
  Thread& at(const char* file, int number) {
    ptx_file = file;
    ptx_number = number;
    return *this;
  }
  // bar.sync 0
  void barrier() { stop(Stop::AtBarrier); }
  // Before a read that may be part of a polling loop.
  void poll() { stop(Stop::Polls); }
  // Before every access to global memory.
  void count_access() {
    if (accesses_left_-- == 0) stop(Stop::TurnIsOver);
  }
  std::uint32_t accesses_left() const { return accesses_left_; }  // in this turn; a random number

  const Kernel& kernel;
  const std::byte* const params;
  std::byte* const shared;    // of the block
  BlockStores* const stores;  // of the block; null: memory is strong
  const std::uint32_t tid, ntid, ctaid, nctaid;
  const char* ptx_file = "";
  int ptx_number = 0;

 private:
  void stop(Stop why) {
    why_ = why;
    fiber_->suspend();
  }
  static void enter(void* self);

  Fiber* fiber_ = nullptr;  // from its first turn to its end
  Stop why_ = Stop::TurnIsOver;
  std::uint32_t accesses_left_ = 0;
};

// The kernel's thread on whose stack the caller runs, or null.
const Thread* running_thread();

}  // namespace fakecuda
