// A new thread inherits its creator's floating-point mode: results would depend on which thread reduces.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace mpi_gdr {

// Until destroyed, the calling thread keeps subnormal numbers and rounds to nearest, IEEE 754's default.
class StandardFloatMode {
 public:
  StandardFloatMode() : callers_(read()), differs_((callers_ & kControl) != kStandard) {
    if (differs_) write((callers_ & ~kControl) | kStandard);
  }
  ~StandardFloatMode() {
    if (differs_) write(callers_);
  }
  StandardFloatMode(const StandardFloatMode&) = delete;
  StandardFloatMode& operator=(const StandardFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Register = std::uint32_t;  // MXCSR
  static constexpr Register kControl = 0xffc0, kStandard = 0x1f80;
  static Register read() { return _mm_getcsr(); }
  static void write(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;  // FPCR
  static constexpr Register kControl = 0xffffffff, kStandard = 0;
  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(Register value) { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
  using Register = std::uint32_t;  // torch.set_flush_denormal() refuses these processors
  static constexpr Register kControl = 0, kStandard = 0;
  static Register read() { return 0; }
  static void write(Register) {}
#endif

  const Register callers_;
  const bool differs_;
};

}  // namespace mpi_gdr
