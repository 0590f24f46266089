#include "schedule/layout.hpp"

#include <numeric>

namespace mpigdr {

Layout::Layout(const CollectiveSpec& spec, const Schedule& schedule, bool aliased)
    : scratch(schedule.scratch_count), staging(schedule.staging_count), bounce(schedule.bounce_count) {
  const auto size = static_cast<std::uint64_t>(spec.size), rank = static_cast<std::uint64_t>(spec.rank);
  switch (spec.collective) {
    case Collective::AllReduce:
      input = output = spec.count;
      if (aliased) alias = Alias::InputInOutput;
      break;
    case Collective::Broadcast:
      output = spec.count;
      break;
    case Collective::Reduce:
      input = spec.count;
      if (spec.rank != spec.root) break;
      output = spec.count;
      if (aliased) alias = Alias::InputInOutput;
      break;
    case Collective::AllGather:
      input = block_count(spec, spec.rank);
      output = block_offset(spec, spec.size);
      offset = block_offset(spec, spec.rank);
      if (aliased) alias = Alias::InputInOutput;
      break;
    case Collective::ReduceScatter:
      input = block_offset(spec, spec.size);
      output = block_count(spec, spec.rank);
      offset = block_offset(spec, spec.rank);
      if (aliased) alias = Alias::OutputInInput;
      break;
    case Collective::AllToAll:
      input = std::accumulate(spec.send_counts.begin(), spec.send_counts.end(), std::uint64_t{0});
      output = std::accumulate(spec.recv_counts.begin(), spec.recv_counts.end(), std::uint64_t{0});
      break;
    case Collective::Gather:
      input = spec.count;
      if (spec.rank != spec.root) break;
      output = spec.count * size;
      offset = spec.count * rank;
      if (aliased) alias = Alias::InputInOutput;
      break;
    case Collective::Scatter:
      output = spec.count;
      if (spec.rank != spec.root) break;
      input = spec.count * size;
      offset = spec.count * rank;
      if (aliased) alias = Alias::OutputInInput;
      break;
    case Collective::Barrier:
      break;
  }
}

Extent Layout::locate(const Slice& slice) const {
  Extent extent{slice.buffer, slice.offset, slice.offset + slice.count};
  const bool moved = (alias == Alias::InputInOutput && slice.buffer == Buffer::Input) ||
                     (alias == Alias::OutputInInput && slice.buffer == Buffer::Output);
  if (!moved) return extent;
  return {alias == Alias::InputInOutput ? Buffer::Output : Buffer::Input, extent.begin + offset,
          extent.end + offset};
}

std::string Layout::out_of_bounds(const Slice& slice) const {
  const std::uint64_t length = slice.buffer == Buffer::Input     ? input
                               : slice.buffer == Buffer::Output  ? output
                               : slice.buffer == Buffer::Scratch ? scratch
                               : slice.buffer == Buffer::Staging ? staging
                                                                 : bounce;
  if (slice.count <= length && slice.offset <= length - slice.count) return "";
  return "names " + text(slice) + ", but that buffer has " + std::to_string(length) + " elements";
}

std::string text(const Slice& slice) {
  static constexpr const char* names[kBufferCount] = {"input", "output", "scratch", "staging", "bounce"};
  return std::string(names[static_cast<int>(slice.buffer)]) + "[" + std::to_string(slice.offset) + ".." +
         std::to_string(slice.offset + slice.count) + ")" +
         (slice.owner < 0 ? "" : " of rank " + std::to_string(slice.owner));
}

}  // namespace mpigdr
