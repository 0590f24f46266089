// The folds that nvcc has made, as PTX, against host::reduce bit for bit.
#define MPIGDR_ISA cuda
#define MPIGDR_FOLD "launched_fold.hpp"

#include "device/kernels/reduce_complex.cpp"
#include "device/kernels/reduce_float8.cpp"
#include "device/kernels/reduce_floats.cpp"
#include "device/kernels/reduce_integers.cpp"
#include "fold_check.hpp"

using namespace mpigdr;
using namespace unit;

namespace {

using kernels::cuda::LaunchedArgs;
constexpr kernels::Families<LaunchedArgs> kLaunched = {
    kernels::cuda::reduce_floats, kernels::cuda::reduce_float8, kernels::cuda::reduce_complex,
    kernels::cuda::reduce_integers};

FoldCheck<LaunchedArgs> fold_check(unsigned seed) {
  return {kLaunched, same_but_for_nans, std::mt19937(seed)};
}

}  // namespace

TEST(every_fold_gives_the_bits_of_the_host) {
  fold_check(5).every_kernel();
  int folds = 0;
  for (const fakecuda::Kernel& kernel : fakecuda::all_kernels()) {
    if (kernel.name.find("fold_") == kernel.name.npos) continue;
    ++folds;
    if (kernels::cuda::launched()[std::string(kernel.name)] == 0)
      throw std::runtime_error("never launched: " + std::string(kernel.name));
  }
  CHECK(folds != 0);
}

TEST(every_offset_and_length_of_a_fold) { fold_check(6).every_offset_and_length(20); }

TEST(a_fold_of_many_blocks_that_take_turns) {
  for (const std::size_t shift : {0, 1})
    fold_check(7).check(DataType::Float32, ReduceOp::Avg, {400000, 3, 1, shift, 256, 32, true}, 1.0, 3);
}

UNIT_MAIN()
