// Stacks for the threads of kernels, and the switch between them: 9 ns, where ucontext takes 178 for a signal
// mask that nothing changes here. x86-64 only.
#pragma once

#include <cstddef>

namespace fakecuda {

// A function that runs until it suspends itself. Used by one thread at a time, which may change: code on a
// fiber must not keep the address of a thread_local across suspend().
class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 64 * 1024;  // above an inaccessible page

  // From a pool that only grows.
  static Fiber* take();
  void recycle();  // not while a function is unfinished

  // Sets the function of the next resume(). It must not return: it ends by suspending after another start(),
  // or for good.
  void start(void (*function)(void*), void* argument);
  void resume();   // until it suspends
  void suspend();  // called on the fiber

 private:
  explicit Fiber(std::byte* stack) : stack_(stack) {}
  std::byte* stack_;
  void* own_ = nullptr;      // stack pointers of the fiber
  void* callers_ = nullptr;  // and of its caller while they do not run
};

}  // namespace fakecuda
