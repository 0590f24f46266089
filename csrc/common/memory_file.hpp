// A file without a name (memfd) that processes of one user map: how it is made, and how another process's is
// found through /proc/PID/fd. It is sealed at its size, since a process that touches pages after the end of a
// file that has been cut is killed by SIGBUS; and it stands in no core dump. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpi_gdr {

// What a ticket of another process may say: no process has more addresses.
inline constexpr std::size_t kMostBytes = std::size_t{1} << 56;

struct MemoryFile {
  int file = -1;
  void* memory = nullptr;
};

// Who may write to it. Kernels before 5.1 cannot take away later writable mappings; the mode then keeps other
// users out, as it does in any case.
enum class Writers : std::uint8_t { All, Owner };

// Pages are given out when they are touched. Throws Error(System).
MemoryFile make_memory_file(std::size_t bytes, Writers writers = Writers::All);
void release(MemoryFile file, std::size_t bytes);

// In a forked child: its mapping becomes a private one in place, so that what it writes stays with it. Pages
// that it has not written to show what the file holds. Where the system has no memory to promise for that,
// they can only be read. Two system calls; takes no lock.
void make_private(MemoryFile file, std::size_t bytes) noexcept;

// Maps file `file` of process `pid`, if it is of this user and of exactly this size, for good; else null.
// Where its owner alone writes: for reading.
void* map_file_of(std::int64_t pid, int file, std::size_t bytes, Writers writers = Writers::All);

// 64 random bits, which tell a file from another one that has got its number. Throws Error(System).
std::uint64_t draw_nonce();

}  // namespace mpi_gdr
