// nvcc's folds, as PTX, against host::reduce bit for bit: division of elements, vector loads, remainders.
#define MPI_GDR_ISA cuda
#define MPI_GDR_FOLD "launched_fold.hpp"

#include "device/kernels/reduce_complex.cpp"
#include "device/kernels/reduce_float8.cpp"
#include "device/kernels/reduce_floats.cpp"
#include "device/kernels/reduce_integers.cpp"
#include "fold_check.hpp"

using namespace mpi_gdr;
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

TEST(vectors_where_pointers_agree_modulo_16) {
  alignas(16) unsigned char memory[4][256] = {};
  using kernels::cuda::fold_args;
  using Bytes = kernels::cuda::PlainCodec<std::uint8_t>;
  using Pairs = kernels::cuda::ComplexCodec<kernels::cuda::PlainCodec<double>>;
  const auto plan = [&]<typename Codec>(Codec, std::size_t dst, std::size_t source, std::size_t count) {
    const void* sources[] = {memory[1] + source, memory[2] + source};
    const auto p =
        fold_args<Codec, 8>({DataType::UInt8, ReduceOp::Sum, memory[0] + dst, sources, 2, count, 1.0, 1});
    return std::pair(p.head, p.vectors);
  };
  using Plan = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(plan(Bytes{}, 0, 0, 100) == Plan(0, 6));
  CHECK(plan(Bytes{}, 5, 5, 100) == Plan(11, 5));
  CHECK(plan(Bytes{}, 5, 21, 100) == Plan(11, 5));
  CHECK(plan(Bytes{}, 5, 5, 7) == Plan(7, 0));
  CHECK(plan(Bytes{}, 5, 6, 100) == Plan(0, 0));
  CHECK(plan(Pairs{}, 16, 0, 5) == Plan(0, 5));
  CHECK(plan(Pairs{}, 8, 8, 5) == Plan(0, 0));  // no whole number of elements before a vector
}

TEST(counts_beyond_32_bits) {
  // The first and last thread of a sum of 2^40 bytes, one vector per thread; only those vectors have memory.
  using Codec = kernels::cuda::PlainCodec<std::uint8_t>;
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 40) + 3;
  alignas(16) unsigned char window[16], added[16];
  for (int i = 0; i < 16; ++i) window[i] = static_cast<unsigned char>(i), added[i] = 100;
  const std::uint64_t vectors = kCount / 16;
  const auto far = [&](unsigned char* last) { return last - (vectors - 1) * 16; };
  const void* sources[] = {far(window), far(added)};
  const auto args = kernels::cuda::fold_args<Codec, 8>(
      {DataType::UInt8, ReduceOp::Sum, far(window), sources, 2, kCount, 1.0, 1});
  CHECK(args.head == 0 && args.vectors == vectors);
  kernels::cuda::fold_elements<Codec, kernels::cuda::Add, false>(args, vectors - 1, vectors);
  for (int i = 0; i < 16; ++i) CHECK(window[i] == 100 + i);
}

TEST(a_device_finds_other_ranks_buffers) {
  const std::uint64_t bases[] = {0x1000, 0x2000, 0x5000, 0};  // two segments each of two ranks
  ResolveArgs args;
  args.ranks = 2;
  args.segments = 2;
  args.stamp = shown_stamp(7);
  CHECK(args.address(0, shown_word(7, 0, 0x10), bases) == 0x1010);
  CHECK(args.address(2, shown_word(7, 1, 0x20), bases) == 0x2020);  // its output
  CHECK(args.address(3, shown_word(7, 0, 0), bases) == 0x5000);
  CHECK(args.address(1, shown_word(7, 1, 8), bases) == 0);     // not mapped here
  CHECK(args.address(0, shown_word(8, 0, 0x10), bases) == 0);  // of another call
  CHECK(args.address(0, shown_stamp(7), bases) == 0 && args.address(0, 0, bases) == 0);
  args.stamp = 0;
  CHECK(args.address(0, 0, bases) == 0);
}

TEST(what_a_device_kernel_refuses) {
  float f[2] = {};
  std::vector<const void*> many(481, f);
  LaunchedArgs args{{DataType::Float32, ReduceOp::Sum, f, many.data(), 481, 1, 1.0, 1}};
  CHECK_THROWS(kernels::reduce_with(kLaunched, args), Error, "source_count=481");
  args.source_count = 480;
  kernels::reduce_with(kLaunched, args);
  const void* odd[] = {reinterpret_cast<const char*>(f) + 1};
  args.sources = odd;
  args.source_count = 1;
  CHECK_THROWS(kernels::reduce_with(kLaunched, args), Error, "aligned to 4 bytes");
  const std::uint64_t table[2] = {};
  const ResolvedSource source;
  ResolvedReduce resolved{args, table, 1, &source, false, 0};
  args.resolved = &resolved;
  CHECK_THROWS(kernels::reduce_with(kLaunched, args), Error, "aligned to 4 bytes");
  args.resolved = nullptr;
  args.op = ReduceOp::BitAnd;
  CHECK_THROWS(kernels::reduce_with(kLaunched, args), Error, "is not defined on");
}

// A kernel without one of its barriers may never end (tests/support/mutants.py).
int main(int argc, char** argv) {
  const char* const limit = std::getenv("MUTANT_SECONDS");
  return unit::run(argc, argv, limit ? static_cast<unsigned>(std::atoi(limit)) : 240);
}
