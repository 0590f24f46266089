// What one process has to say to the others of its host: a list of short texts in shared memory that only it
// can write. It outlives its writer for as long as a rank has it mapped, so that the last words of a
// process that has ended are still read. No store, no socket and no third process is needed.
//
// Threads: post() from any thread of the owner. read() from any thread; each reader keeps its own place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/memory_file.hpp"

namespace mpi_gdr {

class Board {
 public:
  // How another process of this user finds it. Trivially copyable: it travels over MPI.
  struct Ticket {
    std::int64_t pid = 0;
    std::int32_t file = -1;
    std::uint64_t nonce = 0;  // tells it from another file that has got its number
  };

  Board();  // throws System
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  Ticket ticket() const;
  // Visible to all readers when it returns. False: the board is full, or the text longer than kLongest.
  bool post(std::string_view text);

  static constexpr std::size_t kBytes = 4 << 20;  // pages are taken when they are written
  static constexpr std::size_t kLongest = 64 << 10;

 private:
  MemoryFile file_;
  std::mutex mutex_;  // writers
};

// The board of another process, mapped for reading.
class BoardReader {
 public:
  // Null: there is none, or it is not what the ticket says.
  static std::unique_ptr<BoardReader> open(const Board::Ticket& ticket);
  ~BoardReader();
  BoardReader(const BoardReader&) = delete;
  BoardReader& operator=(const BoardReader&) = delete;

  // The texts behind `place`, which begins at 0 and is moved on. What is malformed ends the list for good.
  std::vector<std::string> read(std::size_t& place) const;

 private:
  explicit BoardReader(const void* memory) : memory_(memory) {}
  const void* const memory_;
};

// Those of a host: this process's own, and those of its other ranks by rank; null: no such rank, or it cannot
// be read.
struct Boards {
  std::shared_ptr<Board> own;
  std::vector<std::unique_ptr<BoardReader>> peers;
};

}  // namespace mpi_gdr
