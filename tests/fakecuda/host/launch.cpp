// Launch (gpu/kernel.hpp) for kernels that are host functions (host/kernels.hpp): runs all threads in
// sequence on the thread of the hardware queue. A polling kernel blocks that thread until the word arrives.
#include "gpu/thread.hpp"

namespace fakecuda {
namespace {
thread_local const Thread* running = nullptr;
}

const Thread* running_thread() { return running; }

// Sanitizers check accesses instead.
void set_memory_rules(const MemoryRules*) {}

class Launch::Blocks {
 public:
  Blocks(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params)
      : kernel_(kernel), blocks_(blocks), threads_(threads), params_(std::move(params)) {}
  void run() const {
    for (unsigned block = 0; block < blocks_; ++block)
      for (unsigned i = 0; i < threads_; ++i) {
        Thread thread(kernel_, params_.data(), nullptr, i, threads_, block, blocks_, nullptr);
        running = &thread;
        kernel_.body(thread);
        running = nullptr;
      }
  }

 private:
  const Kernel& kernel_;
  const unsigned blocks_, threads_;
  const std::vector<std::byte> params_;
};

Launch::Launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
               Multiprocessors&, std::uint64_t)
    : blocks_(std::make_unique<Blocks>(kernel, blocks, threads, std::move(params))) {}
Launch::~Launch() = default;
Launch::State Launch::step() {
  blocks_->run();
  return State::Ended;
}

}  // namespace fakecuda
