// All-to-all inside a node.
//   staged     through shared memory: while chunk i is copied in, the others' chunk i - 1 is copied out
//   zero_copy  short blocks as staged, long ones from tensor to tensor
// Each rank has only its own counts, so the number of chunks differs by rank: two ranks wait for each other
// only until their blocks are exchanged, which both compute alike. To bound the schedule, the rest of a block
// is sent as a message after a number of chunks. On a device, whose chunks are larger, memory is the bound.
#include <limits>

#include "collectives/shared.hpp"

namespace mpi_gdr::collectives {
namespace {

std::uint64_t most_chunks(std::uint64_t ranks, const Tuning& tuning) {
  if (tuning.no_messages) return std::numeric_limits<std::uint64_t>::max();
  return std::max<std::uint64_t>(1, 4096 / (ranks - 1));
}

// Writes blocks shorter than `longest` elements through Staging. Returns the rest of each block.
Exchange through_staging(ScheduleWriter& writer, const CollectiveSpec& spec, std::uint64_t longest,
                         const Tuning& tuning) {
  const auto p = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  Exchange late(spec);
  auto [sent, received] = late;
  const std::uint64_t item = item_size(spec.dtype);
  std::uint64_t most = 0;  // elements
  for (std::uint64_t r = 0; r < p; ++r)
    for (const std::uint64_t count : {sent[r].count, received[r].count})
      if (r != rank && count < longest) most = std::max(most, count);
  // Room for the counts of SharedSteps::publish_counts(). Whole cache lines.
  const std::uint64_t table = ((2 * p * sizeof(std::uint64_t) + 63) / 64 * 64 + item - 1) / item;
  writer.staging(table);
  writer.shared();
  Tuning left = tuning;
  left.staging_bytes -= std::min(left.staging_bytes, table * item);
  // Chunks of equal length on all ranks, whatever their counts.
  const StagedChunks rooms(writer, std::numeric_limits<std::uint64_t>::max(), p - 1, spec, left);
  const std::uint64_t each = rooms.each();
  // Where rank r keeps what it sends to rank q.
  const auto room = [&](std::uint64_t r, std::uint64_t q, std::uint64_t i, std::uint64_t count) {
    const Slice here = rooms.room(i, q < r ? q : q - 1, count);
    return r == rank ? here : of(here, static_cast<int>(r));
  };
  const auto has = [&](const Slice& whole, std::uint64_t i) { return whole.count > i * each; };

  const std::uint64_t chunks = std::clamp<std::uint64_t>((most + each - 1) / each, 1, most_chunks(p, tuning));
  const auto cut = [&](Slice& whole) {
    const std::uint64_t staged = whole.count < longest ? std::min(chunks * each, whole.count) : 0;
    const Slice rest{whole.buffer, whole.offset + staged, whole.count - staged};
    whole.count = staged;
    return rest;
  };
  for (std::uint64_t r = 0; r < p; ++r) {
    late.sent[r] = cut(sent[r]);
    late.received[r] = cut(received[r]);
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
    // Signals that chunk i is written and chunk i - 1 has been read.
    writer.round();
    // Waits for chunk i, and for readers of what chunk i + 1 overwrites; chunk 1 overwrites nothing. At chunk
    // 0 both ranks of a pair wait, so that they compare their counts.
    const std::uint64_t next = i == 0 ? 0 : i + 1;
    const auto waits = [&](const Slice& in, const Slice& out) { return has(in, i) || has(out, next); };
    bool signals = false;
    for (std::uint64_t q = 0; q < p; ++q) signals = signals || (q != rank && waits(sent[q], received[q]));
    if (signals) writer.signal();
    writer.copy(rooms.chunk(received[rank], i), rooms.chunk(sent[rank], i));
    for (std::uint64_t k = 1; k < p; ++k) {
      const std::uint64_t q = (rank + k) % p;
      if (waits(received[q], sent[q])) writer.wait(static_cast<int>(q));
    }
  }
  return late;
}

// Elements that the receiver reads itself if it receives more than it sends, so that both copy as much.
std::uint64_t read_of(const Slice& received, const Slice& sent) {
  return received.count > sent.count ? (received.count - sent.count) / 2 : 0;
}

// Copies the ends of blocks; returns whether there are any. Both ranks of a block wait before and after.
bool from_tensor_to_tensor(ScheduleWriter& writer, const CollectiveSpec& spec, const Exchange& ends,
                           const Tuning& tuning) {
  const auto self = static_cast<std::size_t>(spec.rank);
  const auto each_peer = [&](auto&& visit) {
    for (int k = 1; k < spec.size; ++k)
      if (const auto q = static_cast<std::size_t>(wrap(spec.rank + k, spec.size));
          ends.sent[q].count + ends.received[q].count > 0)
        visit(q);
  };
  bool any = false;
  each_peer([&](std::size_t) { any = true; });
  const auto signal = [&] {
    writer.round();
    if (any) writer.signal();
  };
  const auto wait = [&] {
    writer.round();
    each_peer([&](std::size_t q) { writer.wait(static_cast<int>(q)); });
  };
  signal();
  wait();
  each_peer([&](std::size_t q) {
    const Slice &in = ends.received[q], &out = ends.sent[q];
    const std::uint64_t written = out.count - read_of(out, in), read = read_of(in, out);
    const auto owner = static_cast<std::int32_t>(q);
    copy_in_tiles(writer, {Buffer::Output, spec.send_counts[q] - out.count, written, owner},
                  {Buffer::Input, out.offset, written}, spec, tuning);
    copy_in_tiles(writer, {Buffer::Output, in.offset + in.count - read, read},
                  {Buffer::Input, spec.recv_counts[q] - read, read, owner}, spec, tuning);
  });
  signal();
  copy_in_tiles(writer, ends.received[self], ends.sent[self], spec, tuning);  // no rank waits for it
  wait();
  return any;
}

// Uses two lanes, which wait for different pairs. Returns whether other ranks access this rank's tensors.
bool write_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  // Measured on two cores: one copy of longer blocks by the kernel is faster than two by the processor.
  const std::uint64_t longest = std::max<std::uint64_t>(1, 2 * tuning.chunk_bytes / item_size(spec.dtype));
  writer.lane();
  const Exchange ends = through_staging(writer, spec, longest, tuning);
  writer.lane();
  return from_tensor_to_tensor(writer, spec, ends, tuning);
}

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void all_to_all_staged(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  const Exchange late = through_staging(writer, spec, kAll, tuning);
  const auto rank = static_cast<std::size_t>(spec.rank);
  for (int k = 1; k < spec.size; ++k) {
    const int to = wrap(spec.rank + k, spec.size), from = wrap(spec.rank - k, spec.size);
    writer.round();
    writer.recv(from, late.received[static_cast<std::size_t>(from)]);
    writer.send(to, late.sent[static_cast<std::size_t>(to)]);
  }
  copy_in_tiles(writer, late.received[rank], late.sent[rank], spec, tuning);
}

void all_to_all_zero_copy(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  write_zero_copy(writer, spec, tuning);
}

// A rank without long blocks has the same steps in both schedules; others wait until all ranks have begun.
void all_to_all_adaptive(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) {
  if (!write_zero_copy(writer, spec, tuning)) return;
  ScheduleWriter staged("staged");
  all_to_all_staged(staged, spec, tuning);
  writer.staged(staged.finish());
}

}  // namespace mpi_gdr::collectives
