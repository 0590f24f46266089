// Stacks of their own for the threads of kernels, and the switch between them: 9 ns, where ucontext takes 178
// for the signal mask that nobody changes here. x86-64 only.
#pragma once

#include <cstddef>

namespace fakecuda {

// A function that runs until it suspends itself. Used by one thread at a time, which need not be the same one
// each time: what runs on a fiber keeps no address of a thread_local across suspend().
class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 64 * 1024;  // beneath it a page that nobody may touch

  // Of a pool that only grows: its memory stays.
  static Fiber* take();
  void give_back();  // not in the midst of a function

  // The function of the next resume(). It does not return: when it is done it suspends with another one set,
  // or for good.
  void start(void (*function)(void*), void* argument);
  void resume();   // until it suspends
  void suspend();  // by the function itself

 private:
  explicit Fiber(std::byte* stack) : stack_(stack) {}
  std::byte* stack_;
  void* own_ = nullptr;      // stack pointer of whichever
  void* callers_ = nullptr;  // of the two does not run
};

}  // namespace fakecuda
