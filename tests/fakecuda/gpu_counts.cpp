// Prints the table of `make gpu-counts`: driver calls and memory traffic of an all_reduce.
#include "counted.hpp"

using namespace fakecuda_test;

namespace {

constexpr CountedCall kCalls[] = {{"flag, 4 KB", "flag", 1000, false},
                                  {"staged, 400 KB", "staged", 100000, false},
                                  {"staged, 12 MB", "staged", 3000000, false},
                                  {"group memory, 400 KB", "staged", 100000, true}};

Counts most(const std::vector<BothCounts>& ranks, Counts BothCounts::* which) {
  Counts out;
  for (const BothCounts& rank : ranks)
    for (const auto field : {&Counts::calls, &Counts::launches, &Counts::waits, &Counts::read,
                             &Counts::written, &Counts::peer_read, &Counts::peer_written})
      out.*field = std::max(out.*field, (rank.*which).*field);
  return out;
}

void print(int size, const char* name, const char* how, const Counts& counts) {
  const auto kilobytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1000; };
  std::printf("| %d | %s | %s | %llu | %llu | %llu | %.1f | %.1f | %.1f | %.1f |\n", size, name, how,
              static_cast<unsigned long long>(counts.calls), static_cast<unsigned long long>(counts.launches),
              static_cast<unsigned long long>(counts.waits), kilobytes(counts.read),
              kilobytes(counts.written), kilobytes(counts.peer_read), kilobytes(counts.peer_written));
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::puts(
      "An all_reduce of float32, in the steady state, of the rank that has most. Calls: those of the library "
      "that "
      "put\nwork on a stream, or into the graph. Waits: calls that wait for the whole device, or may. "
      "Kilobytes: of "
      "each run.\n\n"
      "| ranks | all_reduce | | calls | of these kernels | waits | KB read | KB written | read from peers | "
      "written to peers |\n|--:|---|---|--:|--:|--:|--:|--:|--:|--:|");
  for (const int size : {2, 4, 8})
    for (const CountedCall& call : kCalls) {
      const auto ranks = count_on_ranks(size, call, std::chrono::seconds(900));
      print(size, call.name, "at once", most(ranks, &BothCounts::at_once));
      print(size, call.name, "in a graph", most(ranks, &BothCounts::in_graph));
    }
}
