// The loop over the elements, one instance per (codec, operation, scaled), and the instances common to the
// families. The loop is the processor's own: MPI_GDR_FOLD, which defines in this namespace
//   Args                            ReduceArgs, or derived from it, with where the kernels run
//   fold<Codec, Op, kScaled>(args)  checked arguments; kScaled: factor and divisor apply
//   fold_exactly<Codec>(args)       sums of ReduceArgs::exact, where Args is ReduceArgs
// Only the reduce_*.cpp beside it include this.
#pragma once

#include <type_traits>

#include "device/kernels/portable.hpp"
#include "device/kernels/reduce_families.hpp"
// Before the functions that call its definitions.
#include MPI_GDR_FOLD

namespace mpi_gdr::kernels::MPI_GDR_ISA {

struct Typed {
  DataType dtype;
  void (*fold)(const Args&);
};

template <std::size_t kCount>
void fold_typed(const Args& args, const Typed (&all)[kCount]) {
  for (const Typed& one : all)
    if (one.dtype == args.dtype) return one.fold(args);
  fail_dtype(args.dtype);
}

template <typename Codec>
void fold_exactly(const ReduceArgs& args);

template <typename Codec>
void fold_sum(const Args& args) {
  if constexpr (std::is_same_v<Args, ReduceArgs>)
    if (args.exact && args.source_count > 1) return fold_exactly<Codec>(args);
  if (args.factor == 1.0 && args.divisor == 1)
    fold<Codec, Add, false>(args);
  else
    fold<Codec, Add, true>(args);
}

// Every operation of real floats.
template <typename Codec>
void fold_real(const Args& args) {
  if (args.op == ReduceOp::Product) return fold<Codec, Multiply, false>(args);
  if (args.op == ReduceOp::Min) return fold<Codec, Minimum, false>(args);
  if (args.op == ReduceOp::Max) return fold<Codec, Maximum, false>(args);
  fold_sum<Codec>(args);
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
