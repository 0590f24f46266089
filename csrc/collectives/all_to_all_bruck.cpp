// All-to-all after Bruck (Bruck et al., see build.hpp): blocks travel by the bits of their distance, half of
// them in each step; scratch n/2 (ceil(lg p) + 1). Requires equal block sizes on all ranks, which no rank can
// check: used only if the user selects it.
#include "collectives/build.hpp"
#include "common/error.hpp"

namespace mpi_gdr::collectives {
namespace {

void expect_even(const CollectiveSpec& spec) {
  const std::uint64_t count = spec.send_counts[0];
  const auto check = [&](const char* argument, const std::vector<std::uint64_t>& counts) {
    for (std::size_t r = 0; r < counts.size(); ++r)
      if (counts[r] != count)
        fail(ErrorCode::InvalidUsage, "all_to_all: algorithm bruck needs even splits on all ranks, but ",
             argument, "[", r, "]=", counts[r], " where send_counts[0]=", count,
             ": unset MPI_GDR_ALLTOALL_ALGO or set it to pairwise");
  };
  check("send_counts", spec.send_counts);
  check("recv_counts", spec.recv_counts);
}

}  // namespace

void all_to_all_bruck(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning&) {
  expect_even(spec);
  writer.lane();
  const int p = spec.size, rank = spec.rank;
  const std::uint64_t count = spec.send_counts[0];
  if (count == 0) return;
  const auto block = [=](Buffer buffer, int of) {
    return Slice{buffer, static_cast<std::uint64_t>(wrap(of, p)) * count, count};
  };
  // Block k travels the distance k, by the bits of k. It stays where it was received last.
  std::vector<Slice> standing;
  for (int k = 0; k < p; ++k) standing.push_back(block(Buffer::Input, rank + k));
  const Slice packed = writer.scratch(count * static_cast<std::uint64_t>(p / 2));
  for (int distance = 1; distance < p; distance *= 2) {
    std::vector<Slice> leaving;
    std::uint64_t number = 0;
    for (int k = 0; k < p; ++k)
      if (k & distance) append(leaving, standing[static_cast<std::size_t>(k)]), ++number;
    const Slice arriving = writer.scratch(number * count);
    Slice message = leaving[0];
    writer.round();
    if (leaving.size() > 1) {
      message = {packed.buffer, packed.offset, 0};
      for (const Slice& slice : leaving) {
        writer.copy({packed.buffer, packed.offset + message.count, slice.count}, slice);
        message.count += slice.count;
      }
      writer.round();
    }
    writer.recv(wrap(rank - distance, p), arriving);
    writer.send(wrap(rank + distance, p), message);
    std::uint64_t place = arriving.offset;
    for (int k = 0; k < p; ++k)
      if (k & distance) {
        standing[static_cast<std::size_t>(k)] = {arriving.buffer, place, count};
        place += count;
      }
  }
  writer.round();
  for (int k = 0; k < p; ++k)
    writer.copy(block(Buffer::Output, rank - k), standing[static_cast<std::size_t>(k)]);
}

}  // namespace mpi_gdr::collectives
