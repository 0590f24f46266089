#include "checker/layout.hpp"

#include "checker/expression.hpp"

namespace mpi_gdr {

Layout::Layout(const CollectiveSpec& spec, const Schedule& schedule, bool aliased)
    : counts{input_count(spec), output_count(spec), schedule.scratch_count, schedule.staging_count,
             schedule.bounce_count} {
  // With a root, only the root's buffers may alias.
  if (!aliased || !has_alias(spec.collective) || (has_root(spec.collective) && spec.rank != spec.root))
    return;
  const CollectiveTraits& kind = traits(spec.collective);
  alias = kind.input == Contents::Blocks ? Alias::OutputInInput : Alias::InputInOutput;
  if (kind.input != kind.output) offset = block_offset(spec, spec.rank);
}

Extent Layout::resolve(const Slice& slice) const {
  Extent extent{slice.buffer, slice.offset, slice.offset + slice.count};
  const bool moved = (alias == Alias::InputInOutput && slice.buffer == Buffer::Input) ||
                     (alias == Alias::OutputInInput && slice.buffer == Buffer::Output);
  if (!moved) return extent;
  return {alias == Alias::InputInOutput ? Buffer::Output : Buffer::Input, extent.begin + offset,
          extent.end + offset};
}

void Layout::check_bounds(const Slice& slice) const {
  const std::uint64_t length = counts[static_cast<std::size_t>(slice.buffer)];
  if (slice.count > length || slice.offset > length - slice.count)
    reject("names ", text(slice), ", but that buffer has ", length, " elements");
}

std::string text(const Slice& slice) {
  return std::string(name(slice.buffer)) + "[" + std::to_string(slice.offset) + ".." +
         std::to_string(slice.offset + slice.count) + ")" +
         (slice.owner < 0 ? "" : " of rank " + std::to_string(slice.owner));
}

}  // namespace mpi_gdr
