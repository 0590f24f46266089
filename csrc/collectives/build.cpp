#include "collectives/build.hpp"

namespace mpi_gdr::collectives {
namespace {

// Bounds the schedule where the chunk size is tiny for the count.
constexpr std::uint64_t kMaxChunks = 1024;

}  // namespace

Exchange::Exchange(const CollectiveSpec& spec) {
  std::uint64_t send_offset = 0, recv_offset = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(spec.size); ++r) {
    sent.push_back({Buffer::Input, send_offset, spec.send_counts[r]});
    received.push_back({Buffer::Output, recv_offset, spec.recv_counts[r]});
    send_offset += spec.send_counts[r];
    recv_offset += spec.recv_counts[r];
  }
}

void append(std::vector<Slice>& slices, const Slice& next) {
  if (next.count == 0) return;
  if (!slices.empty() && slices.back().buffer == next.buffer && slices.back().owner == next.owner &&
      slices.back().offset + slices.back().count == next.offset)
    slices.back().count += next.count;
  else
    slices.push_back(next);
}

Pipeline::Pipeline(std::uint64_t block, const CollectiveSpec& spec, const Tuning& tuning) {
  const std::uint64_t target = std::max<std::uint64_t>(1, tuning.chunk_bytes / item_size(spec.dtype));
  // Rounded down: every lane has at least one full chunk.
  const auto most = static_cast<std::uint64_t>(tuning.max_lanes);
  lanes = static_cast<int>(std::clamp<std::uint64_t>(block / target, 1, most));
  // Rounded up: no message is longer than chunk_bytes. The smallest lane decides for all.
  std::uint64_t smallest = block;
  for (int lane = 0; lane < lanes; ++lane)
    smallest = std::min(smallest, lane_slice({Buffer::Input, 0, block}, lane).count);
  chunks = std::clamp<std::uint64_t>(smallest / target + (smallest % target != 0), 1, kMaxChunks);
}

Blocks::Blocks(const CollectiveSpec& spec) {
  for (int r = 0; r < spec.size; ++r) add(block_count(spec, r));
}

Blocks::Blocks(std::uint64_t count, int parts) {
  const auto number = static_cast<std::uint64_t>(parts);
  for (std::uint64_t k = 0; k < number; ++k) add(piece({Buffer::Input, 0, count}, number, k).count);
}

void Blocks::add(std::uint64_t count) {
  offsets_.push_back(offsets_.back() + count);
  largest_ = std::max(largest_, count);
  if (count == 0)
    any_empty_ = true;
  else if (smallest_ == 0 || count < smallest_)
    smallest_ = count;
}

}  // namespace mpi_gdr::collectives
