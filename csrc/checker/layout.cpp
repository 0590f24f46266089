#include "checker/layout.hpp"

#include <array>
#include <numeric>

namespace mpigdr {

Layout::Layout(const CollectiveSpec& spec, const Schedule& schedule, bool aliased)
    : scratch(schedule.scratch_count), staging(schedule.staging_count), bounce(schedule.bounce_count) {
  // What only the root has, where there is one.
  const bool whole_here = !has_root(spec.collective) || spec.rank == spec.root;
  Alias in_place = Alias::None;
  switch (spec.collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
      input = spec.count;
      if (!whole_here) break;
      output = spec.count;
      in_place = Alias::InputInOutput;
      break;
    case Collective::AllGather:
    case Collective::Gather:
      input = block_count(spec, spec.rank);
      if (!whole_here) break;
      output = block_offset(spec, spec.size);
      offset = block_offset(spec, spec.rank);
      in_place = Alias::InputInOutput;
      break;
    case Collective::ReduceScatter:
    case Collective::Scatter:
      output = block_count(spec, spec.rank);
      if (!whole_here) break;
      input = block_offset(spec, spec.size);
      offset = block_offset(spec, spec.rank);
      in_place = Alias::OutputInInput;
      break;
    case Collective::Broadcast:
      output = spec.count;
      break;
    case Collective::AllToAll:
      input = std::accumulate(spec.send_counts.begin(), spec.send_counts.end(), std::uint64_t{0});
      output = std::accumulate(spec.recv_counts.begin(), spec.recv_counts.end(), std::uint64_t{0});
      break;
    case Collective::Barrier:
      break;
  }
  if (aliased) alias = in_place;
}

Extent Layout::resolve(const Slice& slice) const {
  Extent extent{slice.buffer, slice.offset, slice.offset + slice.count};
  const bool moved = (alias == Alias::InputInOutput && slice.buffer == Buffer::Input) ||
                     (alias == Alias::OutputInInput && slice.buffer == Buffer::Output);
  if (!moved) return extent;
  return {alias == Alias::InputInOutput ? Buffer::Output : Buffer::Input, extent.begin + offset,
          extent.end + offset};
}

std::string Layout::out_of_bounds(const Slice& slice) const {
  const std::uint64_t length =
      std::array{input, output, scratch, staging, bounce}[static_cast<std::size_t>(slice.buffer)];
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
