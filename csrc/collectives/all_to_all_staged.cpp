// All-to-all inside a node through shared memory.
//   T = 1 flag + n copied in + n copied out, per chunk; n = what one rank sends to others
// While a rank copies chunk i in, it copies the others' chunk i - 1 out.
//
// Each rank knows only what it sends and receives itself, so the ranks may differ in their number of chunks.
// A rank waits for another one just as long as it has data for it or from it; both see that alike.
//
// What is longer than so many chunks goes on as a message, where there may be some: nobody knows how long the
// blocks of the others are, so that the table cannot choose by length, and schedules must be bounded. That of
// a device is bounded by its memory, of which a chunk is more.
// Sources: see shared.hpp.
#include <limits>

#include "collectives/shared.hpp"

namespace mpigdr::collectives {
namespace {

std::uint64_t most_chunks(std::uint64_t ranks, const Tuning& tuning) {
  if (tuning.no_messages) return std::numeric_limits<std::uint64_t>::max();
  return std::max<std::uint64_t>(1, 4096 / (ranks - 1));
}

}  // namespace

void all_to_all_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  auto [sent, received] = Exchange(spec);
  std::uint64_t most = 0;  // elements of the largest block to or from another
  for (std::uint64_t r = 0; r < p; ++r)
    if (r != rank) most = std::max({most, sent[r].count, received[r].count});
  const std::uint64_t item = item_size(spec.dtype);
  // Where the executor shows how much this rank sends to each and receives from each; in whole cache lines.
  const std::uint64_t table = ((2 * p * sizeof(std::uint64_t) + 63) / 64 * 64 + item - 1) / item;
  writer.staging(table);
  writer.shared();
  Tuning left = tuning;
  left.staging_bytes -= std::min(left.staging_bytes, table * item);
  // Of one length on all ranks, whatever their counts.
  const StagedChunks rooms(writer, std::numeric_limits<std::uint64_t>::max(), p - 1, spec, left);
  const std::uint64_t each = rooms.each();
  // Where rank r keeps what it sends to rank q.
  const auto room = [&](std::uint64_t r, std::uint64_t q, std::uint64_t i, std::uint64_t count) {
    const Slice here = rooms.room(i, q < r ? q : q - 1, count);
    return r == rank ? here : of(here, static_cast<int>(r));
  };
  const auto has = [&](const Slice& whole, std::uint64_t i) { return whole.count > i * each; };

  const std::uint64_t chunks = std::clamp<std::uint64_t>((most + each - 1) / each, 1, most_chunks(p, tuning));
  // Cuts a block to what its chunks hold, and returns the rest.
  const auto cut = [&](Slice& whole) {
    const std::uint64_t staged = std::min(chunks * each, whole.count);
    const Slice rest{whole.buffer, whole.offset + staged, whole.count - staged};
    whole.count = staged;
    return rest;
  };
  std::vector<Slice> sent_late, received_late;
  for (std::uint64_t r = 0; r < p; ++r) {
    sent_late.push_back(cut(sent[r]));
    received_late.push_back(cut(received[r]));
  }
  for (std::uint64_t i = 0; i <= chunks; ++i) {
    writer.round();
    for (std::uint64_t k = 1; k < p; ++k) {
      const std::uint64_t to = (rank + k) % p;
      if (const Slice part = rooms.chunk(sent[to], i); part.count > 0)
        writer.copy(room(rank, to, i, part.count), part);
    }
    for (std::uint64_t k = 1; k < p && i > 0; ++k) {
      const std::uint64_t from = (rank + p - k) % p;
      if (const Slice part = rooms.chunk(received[from], i - 1); part.count > 0)
        writer.copy(part, room(from, rank, i - 1, part.count));
    }
    if (i == chunks) break;
    // Told: chunk i stands there, and chunk i - 1 has been read. Meanwhile something to do that nobody waits
    // for.
    writer.round();
    // Of chunk 0 both ranks of a pair wait for each other, so that they compare their counts; chunk 1
    // overwrites nothing; each later one what must have been read.
    const std::uint64_t next = i == 0 ? 0 : i + 1;
    const auto waits = [&](const Slice& in, const Slice& out) { return has(in, i) || has(out, next); };
    bool heard = false;
    for (std::uint64_t q = 0; q < p; ++q) heard = heard || (q != rank && waits(sent[q], received[q]));
    if (heard) writer.signal();
    writer.copy(rooms.chunk(received[rank], i), rooms.chunk(sent[rank], i));
    for (std::uint64_t k = 1; k < p; ++k) {
      const std::uint64_t q = (rank + k) % p;
      if (waits(received[q], sent[q])) writer.wait(static_cast<int>(q));
    }
  }
  for (std::uint64_t k = 1; k < p; ++k) {
    const std::uint64_t to = (rank + k) % p, from = (rank + p - k) % p;
    writer.round();
    writer.recv(static_cast<int>(from), received_late[from]);
    writer.send(static_cast<int>(to), sent_late[to]);
  }
  copy_in_tiles(writer, received_late[rank], sent_late[rank], spec, tuning);
}

}  // namespace mpigdr::collectives
