#include "collectives/build.hpp"

#include <limits>
#include <numeric>
#include <string>

#include "common/error.hpp"

namespace mpigdr::collectives {
namespace {

// Bounds the size of a schedule whose chunk size is absurdly small for its count.
constexpr std::uint64_t kMaxChunks = 1024;

void check_counts(const char* argument, const std::vector<std::uint64_t>& counts, const CollectiveSpec& spec,
                  std::uint64_t limit) {
  const auto collective = name(spec.collective);
  if (counts.size() != static_cast<std::size_t>(spec.size))
    fail(ErrorCode::InvalidUsage, collective, ": ", argument, " has ", counts.size(),
         " entries, expected size=", spec.size);
  for (std::uint64_t count : counts)
    if (count > limit)
      fail(ErrorCode::InvalidUsage, collective, ": ", argument, " holds ", count, ", which is too large");
}

}  // namespace

void validate(const CollectiveSpec& spec, const Tuning& tuning) {
  const auto collective = name(spec.collective);
  if (spec.size < 1) fail(ErrorCode::InvalidUsage, collective, ": size=", spec.size, ", expected at least 1");
  if (spec.rank < 0 || spec.rank >= spec.size)
    fail(ErrorCode::InvalidUsage, collective, ": rank=", spec.rank, ", expected 0..", spec.size - 1);
  if (spec.root < 0 || spec.root >= spec.size)
    fail(ErrorCode::InvalidUsage, collective, ": root=", spec.root, ", expected 0..", spec.size - 1);
  if (tuning.max_lanes < 1 || tuning.max_lanes > kMaxLanes)
    fail(ErrorCode::InvalidUsage, collective, ": max_lanes=", tuning.max_lanes, ", expected 1..", kMaxLanes);
  if (tuning.chunk_bytes < 1)
    fail(ErrorCode::InvalidUsage, collective, ": chunk_bytes=0, expected at least 1");
  if (tuning.leaders < 0)
    fail(ErrorCode::InvalidUsage, collective, ": leaders=", tuning.leaders, ", expected at least 0");
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max() / 4 / item_size(spec.dtype) /
                              static_cast<std::uint64_t>(spec.size);
  if (spec.counts.empty() && spec.count > limit)
    fail(ErrorCode::InvalidUsage, collective, ": count=", spec.count, " is too large, expected at most ",
         limit);
  if (spec.collective == Collective::AllToAll) {
    check_counts("send_counts", spec.send_counts, spec, limit);
    check_counts("recv_counts", spec.recv_counts, spec, limit);
  }
  if (!spec.counts.empty()) {
    if (spec.collective != Collective::AllGather && spec.collective != Collective::ReduceScatter)
      fail(ErrorCode::InvalidUsage, collective, ": counts has ", spec.counts.size(),
           " entries, but only all_gather and reduce_scatter take a count for each rank");
    check_counts("counts", spec.counts, spec, limit);
  }
}

SchedulePtr alone(const char* algorithm, const CollectiveSpec& spec) {
  ScheduleWriter writer(algorithm);
  const auto copy = [&](std::uint64_t count, Scale scale) {
    writer.copy({Buffer::Output, 0, count}, {Buffer::Input, 0, count}, scale);
  };
  switch (spec.collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
      copy(spec.count, spec.op == ReduceOp::PreMulSum ? Scale::PreMul : final_scale(spec.op));
      break;
    case Collective::ReduceScatter:
      copy(block_count(spec, 0), spec.op == ReduceOp::PreMulSum ? Scale::PreMul : final_scale(spec.op));
      break;
    case Collective::AllGather:
      copy(block_count(spec, 0), Scale::None);
      break;
    case Collective::Gather:
    case Collective::Scatter:
      copy(spec.count, Scale::None);
      break;
    case Collective::AllToAll:
      copy(spec.send_counts[0], Scale::None);
      break;
    case Collective::Broadcast:
    case Collective::Barrier:
      break;
  }
  return writer.finish();
}

Exchange::Exchange(const CollectiveSpec& spec) {
  std::uint64_t send_offset = 0, recv_offset = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(spec.size); ++r) {
    sent.push_back({Buffer::Input, send_offset, spec.send_counts[r]});
    received.push_back({Buffer::Output, recv_offset, spec.recv_counts[r]});
    send_offset += spec.send_counts[r];
    recv_offset += spec.recv_counts[r];
  }
}

Pipeline::Pipeline(std::uint64_t block, const CollectiveSpec& spec, const Tuning& tuning) {
  const std::uint64_t target = std::max<std::uint64_t>(1, tuning.chunk_bytes / item_size(spec.dtype));
  // Rounded down, so that every lane has at least one full chunk ...
  const auto most = static_cast<std::uint64_t>(tuning.max_lanes);
  lanes = static_cast<int>(std::clamp<std::uint64_t>(block / target, 1, most));
  // ... and then rounded up, so that no message is longer than asked for. The smallest lane decides for all.
  std::uint64_t smallest = block;
  for (int lane = 0; lane < lanes; ++lane)
    smallest = std::min(smallest, piece({Buffer::Input, 0, block}, static_cast<std::uint64_t>(lanes),
                                        static_cast<std::uint64_t>(lane))
                                      .count);
  chunks = std::clamp<std::uint64_t>(smallest / target + (smallest % target != 0), 1, kMaxChunks);
}

Blocks::Blocks(const CollectiveSpec& spec) : offsets_{0} {
  bool empty = false;
  for (int r = 0; r < spec.size; ++r) {
    const std::uint64_t count = block_count(spec, r);
    offsets_.push_back(offsets_.back() + count);
    largest_ = std::max(largest_, count);
    if (count == 0)
      empty = true;
    else if (smallest_ == 0 || count < smallest_)
      smallest_ = count;
  }
  some_empty_ = empty && largest_ > 0;
}

}  // namespace mpigdr::collectives
