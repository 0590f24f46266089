#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace engine_tests {

// Like a device's memory mapped into a process: only the process itself can access it, not the kernel.
class SecretMemory {
 public:
  explicit SecretMemory(std::size_t bytes) : bytes_(bytes) {
    const auto file = static_cast<int>(::syscall(SYS_memfd_secret, 0));
    if (file < 0) return;
    if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
      void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (at != MAP_FAILED) memory = at;
    }
    ::close(file);
  }
  ~SecretMemory() {
    if (memory) ::munmap(memory, bytes_);
  }
  SecretMemory(const SecretMemory&) = delete;
  SecretMemory& operator=(const SecretMemory&) = delete;
  void* memory = nullptr;  // null: not supported here

 private:
  const std::size_t bytes_;
};

inline bool has_secret_memory(std::size_t bytes) {
  if (SecretMemory(bytes).memory) return true;
  std::printf("not tested: this kernel has no memfd_secret, or no more memory may be locked\n");
  return false;
}

}  // namespace engine_tests
