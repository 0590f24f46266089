// The kernels' loop for test_kernels.cpp (MPI_GDR_FOLD): launches the translated kernel. MPI_GDR_ISA is the
// PTX's, so that types have the same names.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <typeinfo>

#include "device/kernels/resolved_fold.hpp"
#include "launch_kernel.hpp"

namespace mpi_gdr::kernels::MPI_GDR_ISA {

struct LaunchedArgs : ReduceArgs {
  unsigned threads = 256;  // for the shape only: these kernels have 256
  unsigned most_blocks = 1;
  const ResolvedReduce* resolved = nullptr;
};
using Args = LaunchedArgs;

// Their mangled names begin the kernels' names.
template <typename Codec, typename Op, bool kScaled, int kCapacity>
struct fold_kernel {};
template <typename Codec, typename Op, bool kScaled>
struct fold_resolved_kernel {};

// Launches by kernel name.
inline std::map<std::string, int>& launched() {
  static std::map<std::string, int> counts;
  return counts;
}

template <typename Tag>
const fakecuda::Kernel& kernel_of() {
  const std::string begin = std::string("_Z") + typeid(Tag).name();
  for (const fakecuda::Kernel& kernel : fakecuda::all_kernels())
    if (kernel.name.starts_with(begin)) {
      ++launched()[std::string(kernel.name)];
      return kernel;
    }
  fail(ErrorCode::Internal, "the PTX has no ", begin);
}

template <typename Tag, typename Parameters>
void run_grid(const Parameters& parameters, std::uint64_t useful, const Args& args) {
  static std::uint64_t seed = 0;
  if (args.count == 0) return;
  constexpr unsigned kThreads = 256;
  const std::uint64_t blocks = std::min<std::uint64_t>((useful + kThreads - 1) / kThreads, args.most_blocks);
  std::vector<std::byte> bytes(sizeof parameters);
  std::memcpy(bytes.data(), &parameters, sizeof parameters);
  fakecuda::Launch launch(kernel_of<Tag>(), static_cast<unsigned>(blocks), kThreads, std::move(bytes),
                          unit::whole_gpu(), ++seed);
  unit::finish(launch);
}

template <typename Codec, typename Op, bool kScaled>
void fold(const Args& args) {
  if (args.resolved) {
    const ResolvedFoldArgs parameters = resolved_fold_args<Codec>(args, *args.resolved);
    return run_grid<fold_resolved_kernel<Codec, Op, kScaled>>(parameters, useful_threads<Codec>(parameters),
                                                              args);
  }
  with_fold_args<Codec>(args, [&]<int kCapacity>(const FoldArgs<kCapacity>& parameters) {
    run_grid<fold_kernel<Codec, Op, kScaled, kCapacity>>(parameters, useful_threads<Codec>(parameters), args);
  });
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
