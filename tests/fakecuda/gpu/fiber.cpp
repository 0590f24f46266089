#include "gpu/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "gpu/fault.hpp"

// Pushes the callee-saved registers, stores the stack pointer in *save, switches to the stack at `load` and
// pops its registers.
extern "C" void fakecuda_switch(void** save, void* load);
// Entry point of a new stack: calls the function in rbx with the argument in rbp.
extern "C" void fakecuda_enter();
asm(R"(
.text
.type fakecuda_switch, @function
fakecuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fakecuda_switch, .-fakecuda_switch

.type fakecuda_enter, @function
fakecuda_enter:
  .cfi_startproc
  .cfi_undefined %rip
  movq %rbp, %rdi
  xorl %ebp, %ebp
  callq *%rbx
  ud2
  .cfi_endproc
.size fakecuda_enter, .-fakecuda_enter
)");

namespace fakecuda {
namespace {

std::mutex pool_mutex;
std::vector<Fiber*>& pool() {
  static auto* const fibers = new std::vector<Fiber*>;  // leaked: kernels may still run at exit
  return *fibers;
}

std::byte* new_stack() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, Fiber::kStackBytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
    fault("no memory for the stack of a kernel's thread");
  return static_cast<std::byte*>(memory) + page;
}

}  // namespace

Fiber* Fiber::take() {
  {
    const std::lock_guard lock(pool_mutex);
    if (!pool().empty()) {
      Fiber* const fiber = pool().back();
      pool().pop_back();
      return fiber;
    }
  }
  return new Fiber(new_stack());
}

void Fiber::recycle() {
  const std::lock_guard lock(pool_mutex);
  pool().push_back(this);
}

void Fiber::start(void (*function)(void*), void* argument) {
  // Popped by the switch: r15 to r12, rbx, rbp, the return address. The stack is aligned in fakecuda_enter.
  auto* const top = reinterpret_cast<void**>(stack_ + kStackBytes) - 9;
  top[4] = reinterpret_cast<void*>(function);
  top[5] = argument;
  top[6] = reinterpret_cast<void*>(&fakecuda_enter);
  own_ = top;
}

void Fiber::resume() { fakecuda_switch(&callers_, own_); }
void Fiber::suspend() { fakecuda_switch(&own_, callers_); }

}  // namespace fakecuda
