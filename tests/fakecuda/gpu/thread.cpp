#include "gpu/thread.hpp"

namespace fakecuda {
namespace {
thread_local const Thread* running = nullptr;
}

const Thread* running_thread() { return running; }

void Thread::enter(void* self) {
  auto& thread = *static_cast<Thread*>(self);
  thread.kernel.body(thread);
  thread.stop(Stop::Ended);
}

Thread::Stop Thread::run(std::uint32_t accesses) {
  if (!fiber_) {
    fiber_ = Fiber::take();
    fiber_->start(&enter, this);
  }
  accesses_left_ = accesses;
  running = this;
  fiber_->resume();
  running = nullptr;
  if (why_ == Stop::Ended) {
    fiber_->recycle();
    fiber_ = nullptr;
  }
  return why_;
}

}  // namespace fakecuda
