// Kernels on a GPU made of software: what nvcc's PTX was translated to (ptx.py), and its execution in time
// slices. Nothing here knows of streams or of the runtime's functions: those are cudart/.
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
  std::uint32_t registers;  // of a thread, at most: what lets the blocks of .minnctapersm run at once, else 8
  std::uint32_t most_threads;  // of a block
};

// All kernels of all PTX files.
std::span<const Kernel> all_kernels();
// Null: no PTX has it. A name of internal linkage holds a hash of how its file was compiled, which is not
// compared.
const Kernel* find_kernel(std::string_view mangled);

// For static initialisers. Their names stay.
bool enter_kernels(std::span<const Kernel> kernels);
// One that is a function of the host (host/kernels.hpp).
bool enter_host_kernel(const void* function, const Kernel& kernel);

// A launch that is being executed. Its blocks come on multiprocessors that have room, and take turns with
// each other: at every access that may be a poll, and now and then elsewhere. Used by one thread at a time,
// which need not be the same one each time. A fault (fault.hpp) ends the process.
class Launch {
 public:
  enum class State {
    Running,  // step() again
    Waiting,  // as Running, but all resident threads poll, or there is no room for any block: let others run
    Ended,
  };
  // Of `blocks` * `threads` threads. `params`: kernel.param_bytes. `seed`: of the order in which blocks take
  // turns. `room` outlives this.
  Launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::vector<std::byte> params,
         Multiprocessors& room, std::uint64_t seed = 0);
  // Only when Ended, for a kernel does not go away.
  ~Launch();
  Launch(const Launch&) = delete;
  // Runs for some 100 us at most.
  State step();

 private:
  class Blocks;
  std::unique_ptr<Blocks> blocks_;
};

// Who knows which memory there is. One for the process; called at every access of a kernel to global memory,
// on the kernel's own stack (64 KiB), by any thread that executes a Launch. Calls fault() if the access is
// not allowed. Alignment is checked before. Whether the host, or another device, has that memory.
class MemoryRules {
 public:
  virtual ~MemoryRules() = default;
  virtual bool check(const void* address, std::size_t bytes, bool write) const = 0;
};
// Before the first launch. Null, as in the beginning: every address will do.
void set_memory_rules(const MemoryRules* rules);

}  // namespace fakecuda
