// The code of a device's kernels, compiled for the host and run there thread by thread, against host::reduce
// bit for bit: which element is whose, what is read as vectors, and what is left over at either end.
#define MPIGDR_ISA emulated
#define MPIGDR_FOLD "emulated_fold.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "common/error.hpp"
#include "device/kernels/reduce_complex.cpp"
#include "device/kernels/reduce_float8.cpp"
#include "device/kernels/reduce_floats.cpp"
#include "device/kernels/reduce_integers.cpp"
#include "device_elements.hpp"
#include "test.hpp"

using namespace mpigdr;
using namespace unit;

namespace {

using kernels::emulated::EmulatedArgs;
constexpr kernels::Families<EmulatedArgs> kEmulated = {
    kernels::emulated::reduce_floats, kernels::emulated::reduce_float8, kernels::emulated::reduce_complex,
    kernels::emulated::reduce_integers};

// Memory at a chosen distance from a multiple of 16, which knows whether something was written around it.
class Buffer {
 public:
  Buffer(std::size_t residue, std::size_t bytes) : bytes_(bytes), memory_(residue + bytes + 48, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (16 - address % 16) % 16 + 16 + residue;
    end_ = memory_.data() + memory_.size();
  }
  void fill(const std::vector<unsigned char>& values) {
    if (!values.empty()) std::memcpy(begin_, values.data(), values.size());
  }
  unsigned char* data() { return begin_; }
  bool guarded() const {
    const auto same = [](unsigned char b) { return b == kGuard; };
    return std::all_of(memory_.data(), static_cast<const unsigned char*>(begin_), same) &&
           std::all_of(static_cast<const unsigned char*>(begin_) + bytes_,
                       static_cast<const unsigned char*>(end_), same);
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
  unsigned char *begin_, *end_;
};

struct Shape {
  std::size_t count;
  int sources;
  std::size_t residue;  // of dst, in alignments of the element
  std::size_t shift;    // of the last source, relative to that
  unsigned threads, most_blocks;
  bool in_place;  // dst is the last source
};

// The same reduction with addresses from a table: of every second source, and of the outputs of all ranks but
// the first, or of all.
void check_located(EmulatedArgs args, const std::vector<unsigned char>& expected, const Shape& shape,
                   bool all_outputs) {
  const std::size_t alignment = alignment_of(args.dtype), bytes = shape.count * item_size(args.dtype);
  const int ranks = shape.sources;
  std::vector<Buffer> outputs;
  for (int r = 0; r < ranks; ++r)
    outputs.emplace_back((shape.residue + (r == 1 ? shape.shift : 0)) * alignment % 16, bytes);
  Buffer dst(shape.residue * alignment % 16, bytes);
  const std::vector<unsigned char> blank(bytes, 0x77);
  dst.fill(blank);
  std::vector<std::uint64_t> table;
  std::vector<const void*> sources(args.sources, args.sources + args.source_count);
  std::vector<LocatedSource> located(sources.size());
  for (int r = 0; r < ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    table.push_back(r % 2 == 0 ? 0 : reinterpret_cast<std::uint64_t>(sources[at]) - 8);
    if (r % 4 != 3) located[at] = {r, 8};  // of those with an address, some are not asked for
    if (r % 4 == 1) sources[at] = nullptr;
  }
  for (int r = 0; r < ranks; ++r)
    table.push_back(r == 0 && !all_outputs
                        ? 0
                        : reinterpret_cast<std::uint64_t>(outputs[static_cast<std::size_t>(r)].data()) - 24);
  // The last rank's in place.
  std::vector<unsigned char> last(bytes);
  if (bytes) std::memcpy(last.data(), args.sources[ranks - 1], bytes);
  outputs.back().fill(last);
  sources.back() = outputs.back().data();
  located.back() = {};
  args.dst = dst.data();
  args.sources = sources.data();
  const LocatedReduce reduce{args, table.data(), ranks, located.data(), true, 24};
  args.located = &reduce;
  kernels::reduce_with(kEmulated, args);
  const auto holds = [&](Buffer& buffer, const std::vector<unsigned char>& what) {
    return bytes == 0 || std::memcmp(buffer.data(), what.data(), bytes) == 0;
  };
  CHECK(holds(dst, all_outputs ? blank : expected) && dst.guarded());
  for (int r = all_outputs ? 0 : 1; r < ranks; ++r) {
    Buffer& output = outputs[static_cast<std::size_t>(r)];
    CHECK(holds(output, expected) && output.guarded());
  }
}

void check(DataType dtype, ReduceOp op, const Shape& shape, double factor, std::uint32_t divisor,
           std::mt19937& random) {
  const std::size_t alignment = alignment_of(dtype), bytes = shape.count * item_size(dtype);
  std::vector<Buffer> sources;
  for (int k = 0; k < shape.sources; ++k) {
    const bool last = k == shape.sources - 1;
    sources.emplace_back((shape.residue + (last ? shape.shift : 0)) * alignment % 16, bytes);
    sources.back().fill(random_elements(dtype, shape.count, random));
  }
  std::vector<const void*> addresses;
  for (Buffer& source : sources) addresses.push_back(source.data());
  std::vector<unsigned char> expected(bytes + 1);
  EmulatedArgs args{
      {dtype, op, expected.data(), addresses.data(), shape.sources, shape.count, factor, divisor},
      shape.threads,
      shape.most_blocks};
  host::reduce(args);
  check_located(args, expected, shape, false);
  check_located(args, expected, shape, true);
  Buffer fresh(shape.residue * alignment % 16, bytes);
  Buffer& dst = shape.in_place ? sources.back() : fresh;
  args.dst = dst.data();
  kernels::reduce_with(kEmulated, args);
  CHECK(bytes == 0 || std::memcmp(dst.data(), expected.data(), bytes) == 0);
  CHECK(dst.guarded());
}

// Every kernel with each of these: one source and many, few threads and more than there are elements.
constexpr Shape kShapes[] = {
    {0, 2, 0, 0, 4, 2, false},    {1, 1, 1, 0, 32, 4, false},  {7, 3, 3, 0, 2, 2, false},
    {64, 2, 0, 0, 4, 2, false},   {103, 1, 5, 0, 4, 3, true},  {103, 2, 5, 0, 4, 3, false},
    {103, 3, 1, 0, 32, 4, true},  {103, 9, 1, 0, 3, 5, false}, {103, 2, 0, 1, 4, 3, false},
    {103, 9, 15, 1, 4, 3, false}, {257, 3, 2, 0, 8, 2, false}, {257, 9, 0, 0, 256, 8, true},
};

}  // namespace

TEST(every_device_kernel_gives_the_bits_of_the_host) {
  std::mt19937 random(5);
  for (int d = 0; d < kDataTypeCount; ++d)
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DataType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!supports(op, dtype)) continue;
      for (const Shape& shape : kShapes) {
        check(dtype, op, shape, op == ReduceOp::PreMulSum ? 0.3 : 1.0, 1, random);
        if (op == ReduceOp::Avg) check(dtype, op, shape, 1.0, 3, random);
      }
    }
}

TEST(every_offset_and_length_of_a_device_kernel) {
  std::mt19937 random(6);
  for (const DataType dtype : {DataType::UInt8, DataType::BFloat16, DataType::Complex128})
    for (std::size_t count = 0; count <= 50; ++count)
      for (std::size_t residue = 0; residue < 16 / alignment_of(dtype); ++residue)
        for (const std::size_t shift : {0, 1}) {
          check(dtype, ReduceOp::Sum, {count, 2, residue, shift, 3, 2, false}, 1.0, 1, random);
          check(dtype, ReduceOp::Sum, {count, 2, residue, shift, 64, 2, true}, 1.0, 1, random);
        }
}

TEST(vectors_where_pointers_agree_modulo_16) {
  alignas(16) unsigned char memory[4][256] = {};
  using kernels::emulated::fold_args;
  using Bytes = kernels::emulated::IntegerCodec<std::uint8_t>;
  using Pairs = kernels::emulated::ComplexCodec<kernels::emulated::FloatCodec<double>>;
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
  // The first and the last thread of a sum of 2^40 bytes, with as many threads as there is work: each touches
  // one vector, of memory that has only these addresses.
  using Codec = kernels::emulated::IntegerCodec<std::uint8_t>;
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 40) + 3;
  alignas(16) unsigned char window[16], added[16];
  for (int i = 0; i < 16; ++i) window[i] = static_cast<unsigned char>(i), added[i] = 100;
  const std::uint64_t vectors = kCount / 16;
  const auto far = [&](unsigned char* last) { return last - (vectors - 1) * 16; };
  const void* sources[] = {far(window), far(added)};
  const auto args = kernels::emulated::fold_args<Codec, 8>(
      {DataType::UInt8, ReduceOp::Sum, far(window), sources, 2, kCount, 1.0, 1});
  CHECK(args.head == 0 && args.vectors == vectors);
  kernels::emulated::fold_elements<Codec, kernels::emulated::Add, false>(args, vectors - 1, vectors);
  for (int i = 0; i < 16; ++i) CHECK(window[i] == 100 + i);
}

TEST(what_a_device_believes_of_other_ranks_buffers) {
  const std::uint64_t bases[] = {0x1000, 0x2000, 0x5000, 0};  // two segments each of two ranks
  LocateArgs args;
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
  EmulatedArgs args{{DataType::Float32, ReduceOp::Sum, f, many.data(), 481, 1, 1.0, 1}, 32, 1};
  CHECK_THROWS(kernels::reduce_with(kEmulated, args), Error, "source_count=481");
  args.source_count = 480;
  kernels::reduce_with(kEmulated, args);
  const void* odd[] = {reinterpret_cast<const char*>(f) + 1};
  args.sources = odd;
  args.source_count = 1;
  CHECK_THROWS(kernels::reduce_with(kEmulated, args), Error, "aligned to 4 bytes");
  const std::uint64_t table[2] = {};
  const LocatedSource source;
  LocatedReduce located{args, table, 1, &source, false, 0};
  args.located = &located;
  CHECK_THROWS(kernels::reduce_with(kEmulated, args), Error, "aligned to 4 bytes");
  args.located = nullptr;
  args.op = ReduceOp::BitAnd;
  CHECK_THROWS(kernels::reduce_with(kEmulated, args), Error, "is not defined on");
}

UNIT_MAIN()
