#include "execution/local_step.hpp"

#include "common/error.hpp"

namespace mpi_gdr {

ReduceArgs element_args(const Step& step, const Binding& binding) {
  ReduceArgs args;
  args.dtype = binding.dtype;
  args.op = binding.op;
  if (step.scale == Scale::PreMul) args.factor = binding.factor;
  if (step.scale == Scale::Average) args.divisor = binding.divisor;
  args.exact = binding.exact && step.kind == StepKind::Reduce;
  return args;
}

LocalStep resolve(const Step& step, const Binding& binding, void* dst,
                  const std::vector<const void*>& sources) {
  MPI_GDR_CHECK((step.kind == StepKind::Copy || step.kind == StepKind::Reduce) &&
                step.dst.buffer != Buffer::Input);
  LocalStep local;
  local.bytes = byte_count(step.dst, binding);
  local.args = element_args(step, binding);
  local.args.dst = dst;
  local.args.sources = sources.data();
  local.args.source_count = static_cast<int>(sources.size());
  local.args.count = static_cast<std::size_t>(step.dst.count);
  if (is_reduction(step, local.args))
    local.kind = LocalStep::Kind::Reduce;
  else if (local.args.dst != sources[0])
    local.kind = LocalStep::Kind::Copy;
  return local;
}

}  // namespace mpi_gdr
