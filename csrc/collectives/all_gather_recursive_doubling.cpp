// All-gather by recursive doubling; for p not a power of two by Bruck's pattern without its rotation: a run
// of blocks that passes the end of the buffer is two messages. Bruck et al.; Thakur et al., see build.hpp.
#include <bit>

#include "collectives/build.hpp"

namespace mpi_gdr::collectives {

void all_gather_recursive_doubling(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  writer.lane();
  const int p = spec.size, rank = spec.rank;
  const Blocks all(spec);
  if (all.some_empty()) writer.one_way();
  const Slice input{Buffer::Input, 0, all.count(rank)};
  const auto blocks = [&](int first, int number) { return all.run(Buffer::Output, first, number); };
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(p));
  for (int distance = 1; distance < p; distance *= 2) {
    writer.round();
    int to = rank ^ distance, from = to;
    int number = distance, first_sent = rank - rank % distance, first_received = from - from % distance;
    if (!power_of_two) {
      to = wrap(rank - distance, p);
      from = wrap(rank + distance, p);
      number = std::min(distance, p - distance);
      first_sent = rank;
      first_received = from;
    }
    const int until_end = std::min(number, p - first_received);
    writer.recv(from, blocks(first_received, until_end));
    writer.recv(from, blocks(0, number - until_end));
    if (distance == 1) {  // from Input: need not wait for the copy
      writer.send(to, input);
      writer.copy(blocks(rank, 1), input);
    } else {
      const int sent_until_end = std::min(number, p - first_sent);
      writer.send(to, blocks(first_sent, sent_until_end));
      writer.send(to, blocks(0, number - sent_until_end));
    }
  }
}

}  // namespace mpi_gdr::collectives
