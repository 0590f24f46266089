// Messages between the processes of a host through shared memory.
#include <fcntl.h>
#include <sys/mman.h>

#include "bootstrap/board.hpp"
#include "test.hpp"

using namespace mpi_gdr;

TEST(texts_arrive_once_and_in_order) {
  Board board;
  const auto reader = BoardReader::open(board.ticket());
  std::size_t place = 0, late = 0;
  CHECK(reader && reader->read(place).empty());
  CHECK(board.post("one") && board.post("") && board.post(std::string("t\0o", 3)));
  CHECK(reader->read(place) == (std::vector<std::string>{"one", "", std::string("t\0o", 3)}));
  CHECK(reader->read(place).empty());
  CHECK(board.post("four") && reader->read(place) == std::vector<std::string>{"four"});
  CHECK(reader->read(late).size() == 4);
}

TEST(last_words_outlive_their_process) {
  int pipes[2], back[2];
  CHECK(pipe(pipes) == 0 && pipe(back) == 0);
  const pid_t child = fork();
  if (child == 0) {
    Board board;
    const Board::Ticket ticket = board.ticket();
    char mapped = 0;
    if (write(pipes[1], &ticket, sizeof ticket) < 0 || read(back[0], &mapped, 1) < 0) _exit(1);
    board.post("goodbye");
    _exit(0);
  }
  Board::Ticket ticket;
  CHECK(read(pipes[0], &ticket, sizeof ticket) == sizeof ticket);
  const auto reader = BoardReader::open(ticket);
  CHECK(reader && write(back[1], "", 1) == 1);
  waitpid(child, nullptr, 0);
  std::size_t place = 0;
  CHECK(reader->read(place) == std::vector<std::string>{"goodbye"});
  CHECK(!BoardReader::open(ticket));  // the process is gone
}

TEST(nobody_else_can_write_or_shrink_a_board) {
  Board board;
  const std::string path = "/proc/self/fd/" + std::to_string(board.ticket().file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(file >= 0);
  CHECK(ftruncate(file, 0) != 0 && ftruncate(file, 2 * Board::kBytes) != 0);
  CHECK(mmap(nullptr, Board::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED);
  CHECK(write(file, "x", 1) < 0);
  close(file);
}

TEST(a_file_that_is_no_board_is_refused) {
  Board board;
  Board::Ticket other = board.ticket();
  other.nonce += 1;  // the descriptor was closed and reused
  CHECK(!BoardReader::open(other));
  other = board.ticket();
  other.file = STDERR_FILENO;
  CHECK(!BoardReader::open(other));
  const int unsealed = memfd_create("test", MFD_CLOEXEC);  // could be shrunk below its reader
  CHECK(unsealed >= 0 && ftruncate(unsealed, Board::kBytes) == 0);
  other.file = unsealed;
  CHECK(!BoardReader::open(other));
  close(unsealed);
}

TEST(a_full_board_says_so) {
  Board board;
  CHECK(!board.post(std::string(Board::kLongest + 1, 'x')));
  const std::string text(Board::kLongest, 'x');
  std::size_t posted = 0;
  while (board.post(text)) ++posted;
  CHECK(posted == Board::kBytes / Board::kLongest - 1);
  const auto reader = BoardReader::open(board.ticket());
  std::size_t place = 0;
  CHECK(reader->read(place).size() == posted);
}

// For ThreadSanitizer.
TEST(threads_may_post_and_read) {
  Board board;
  const auto reader = BoardReader::open(board.ticket());
  std::vector<std::thread> writers;
  for (int w = 0; w < 3; ++w)
    writers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) board.post("0123456789");
    });
  std::size_t place = 0, seen = 0;
  while (seen < 3000)
    for (const std::string& text : reader->read(place)) {
      CHECK(text == "0123456789");
      ++seen;
    }
  for (std::thread& writer : writers) writer.join();
}

UNIT_MAIN()
