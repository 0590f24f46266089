// Resolves a schedule's slices and local steps on a Binding's memory: addresses, lengths, and the kernel (if
// any) of a Copy or Reduce. Shared by the host and the stream execution. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "common/types.hpp"
#include "device/device.hpp"
#include "execution/execution.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

inline std::size_t byte_count(const Slice& slice, const Binding& binding) {
  return static_cast<std::size_t>(slice.count) * item_size(binding.dtype);
}

inline const std::byte* source_address(const Slice& slice, const Binding& binding) {
  const void* base = slice.buffer == Buffer::Input     ? binding.input
                     : slice.buffer == Buffer::Output  ? binding.output
                     : slice.buffer == Buffer::Scratch ? binding.scratch
                                                       : binding.bounce;
  return static_cast<const std::byte*>(base) + slice.offset * item_size(binding.dtype);
}

// The arguments of a Copy or Reduce except addresses and counts. A copy that scales reduces one source.
ReduceArgs element_args(const Step& step, const Binding& binding);
inline bool is_reduction(const Step& step, const ReduceArgs& args) {
  return step.kind == StepKind::Reduce || args.factor != 1.0 || args.divisor != 1;
}

struct LocalStep {
  enum class Kind : std::uint8_t {
    Nothing,  // a plain copy of a slice onto itself
    Copy,     // args.dst, args.sources[0], bytes
    Reduce,   // args: also a copy that scales
  };
  Kind kind = Kind::Nothing;
  std::size_t bytes = 0;
  ReduceArgs args;
};

LocalStep resolve(const Step& step, const Binding& binding, void* dst,
                  const std::vector<const void*>& sources);
// `address` maps a slice to its memory. The result points into `sources`, which must outlive it.
template <typename Address>
LocalStep resolve(const Schedule& schedule, const Step& step, const Binding& binding, const Address& address,
                  std::vector<const void*>& sources) {
  sources.clear();
  for (std::uint32_t k = 0; k < step.source_count; ++k) sources.push_back(address(schedule.source(step, k)));
  return resolve(step, binding, address(step.dst), sources);
}
inline LocalStep resolve(const Schedule& schedule, const Step& step, const Binding& binding,
                         std::vector<const void*>& sources) {
  const auto address = [&](const Slice& s) { return const_cast<std::byte*>(source_address(s, binding)); };
  return resolve(schedule, step, binding, address, sources);
}

inline void submit(const LocalStep& local, DeviceQueue& queue) {
  if (local.kind == LocalStep::Kind::Copy)
    queue.copy(local.args.dst, local.args.sources[0], local.bytes);
  else if (local.kind == LocalStep::Kind::Reduce)
    queue.reduce(local.args);
}

}  // namespace mpi_gdr
