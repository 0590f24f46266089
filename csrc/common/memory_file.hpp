// An unnamed file (memfd) that processes of one user map; others find it through /proc/PID/fd. Sealed at its
// size, since accesses beyond a truncated end raise SIGBUS; not in core dumps. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpi_gdr {

// Upper bound for sizes received from other processes; no address space is larger.
inline constexpr std::size_t kMostBytes = std::size_t{1} << 56;

struct MemoryFile {
  int file = -1;
  void* memory = nullptr;
};

// Who may write. Before Linux 5.1, only the file's mode restricts later writable mappings.
enum class Writers : std::uint8_t { All, Owner };

// Pages are allocated when touched. Throws Error(System).
MemoryFile make_memory_file(std::size_t bytes, Writers writers = Writers::All);
void release(MemoryFile file, std::size_t bytes);

// In a forked child, makes the mapping private in place: unwritten pages show the file. Read-only if the
// system cannot commit memory for it. At most three system calls, no lock.
void make_private(MemoryFile file, std::size_t bytes) noexcept;

// Maps a file of process `pid` if this user's and sealed at this size, else null. Writers::Owner: read-only.
void* map_file_of(std::int64_t pid, int file, std::size_t bytes, Writers writers = Writers::All);

// 64 random bits, which distinguish files that get the same number. Throws Error(System).
std::uint64_t draw_nonce();

}  // namespace mpi_gdr
