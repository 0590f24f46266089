// Kernels of the software GPU: translated from nvcc's PTX (ptx.py), and executed in time slices. Independent
// of streams and of the runtime (cudart/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/multiprocessors.hpp"

namespace fakecuda {

class Thread;  // thread.hpp

struct Kernel {
  struct Param {
    std::uint32_t at, bytes;
  };
  std::string_view name;  // mangled
  void (*body)(Thread&);
  std::span<const Param> params;
  std::uint32_t param_bytes, shared_bytes;
  std::uint32_t registers;     // of a thread
  std::uint32_t most_threads;  // of a block
};

// The kernels of all PTX files.
std::span<const Kernel> all_kernels();
// Null: no PTX has it. Names of internal linkage are compared without the hashes of their compilation.
const Kernel* find_kernel(std::string_view mangled);

// For static initialisers. The names must stay valid.
bool enter_kernels(std::span<const Kernel> kernels);
// Enters a host function as a kernel (host/kernels.hpp).
bool enter_host_kernel(const void* function, const Kernel& kernel);

// A running launch. Its blocks enter multiprocessors with room and take turns: at every access that may be a
// poll, and sometimes elsewhere. Used by one thread at a time, which may change. A fault (fault.hpp) ends the
// process.
class Launch {
 public:
  enum class State {
    Running,  // call step() again
    Waiting,  // as Running, but all resident threads poll or no block has room: run others first
    Ended,
  };
  // `params`: kernel.param_bytes. `seed`: for the order of the turns. `room` must outlive this.
  Launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
         Multiprocessors& room, std::uint64_t seed = 0);
  // Only after Ended.
  ~Launch();
  Launch(const Launch&) = delete;
  // Runs for about 100 us at most.
  State step();

 private:
  class Blocks;
  std::unique_ptr<Blocks> blocks_;
};

// The process's memory map. check() is called at every aligned access of a kernel to global memory, on the
// kernel's stack (64 KiB), by any thread that executes a Launch. It calls fault() for a forbidden access, and
// returns whether the memory belongs to the host or to another device.
class MemoryRules {
 public:
  virtual ~MemoryRules() = default;
  virtual bool check(const void* address, std::size_t bytes, bool write) const = 0;
};
// Call before the first launch. Null (the default): every address is allowed.
void set_memory_rules(const MemoryRules* rules);

}  // namespace fakecuda
