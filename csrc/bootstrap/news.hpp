// What ranks tell each other of their lives. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpi_gdr {

struct News {
  enum class Kind : std::uint8_t {
    Ended,    // the process is gone
    Silent,   // given up: stopped, or not heard of, for too long
    Left,     // it said goodbye
    Failed,   // it takes no part any more in the groups that `details` names; it lives on
    Aborted,  // it called MPI_Abort: everybody ends
    Quiet,    // stopped, or not heard of for a while: it may come back
    Back,     // and did
    Slow      // it waits in a collective, which `details` describes
  };
  Kind kind = Kind::Left;
  std::vector<int> ranks;    // whom it is about, at least one
  std::string text;          // a sentence that names ranks, hosts, pids and how it was found
  bool meets_again = false;  // Left: it waits for the others before it ends MPI
  // Left and Failed: how far it took part, for code that knows groups. Quiet and Back: a number that
  // tells one time from the next.
  std::string details;
};

std::string serialise(const News& news);
// Nothing: it is no news of a job of so many ranks.
std::optional<News> parse_news(const std::string& text, int size);

}  // namespace mpi_gdr
