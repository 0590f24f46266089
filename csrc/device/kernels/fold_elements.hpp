// The work of one thread of a device in a fold, and the arguments of all its threads. Plain functions: the
// host fills in the arguments, and tests/fakecuda/test_folds.cpp calls them there. Elements are accessed 16
// bytes at a time where all pointers agree modulo 16, except a few at either end; otherwise one by one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/error.hpp"
#include "device/device.hpp"
#include "device/kernels/codecs.hpp"
#include "device/kernels/operations.hpp"
#include "device/kernels/portable.hpp"

// Overlaps the loads of several sources.
#if defined(__CUDA_ARCH__) || defined(__clang__)
#define MPI_GDR_UNROLL_SOURCES _Pragma("unroll 4")
#else
#define MPI_GDR_UNROLL_SOURCES
#endif

namespace mpi_gdr::kernels::MPI_GDR_ISA {

inline constexpr int kLoadsInFlight = 4;  // that a thread issues before it uses the first

// The widest load of a GPU's thread: a type of the GPU compilers.
#if defined(__CUDACC__) || defined(__HIPCC__)
using Vector = uint4;
#else
struct alignas(16) Vector {
  std::uint32_t words[4];
};
#endif

// A kernel's arguments, all in the launch (4 KiB at most): no device memory has to be filled before.
template <int kCapacity>
struct FoldArgs {
  void* dst;
  std::uint64_t count;    // elements
  std::uint64_t head;     // of them before the first whole vector
  std::uint64_t vectors;  // whole vectors
  double factor;
  std::uint32_t divisor;
  int source_count;
  const void* sources[kCapacity];
};

// Two kernels of each kind, because the arguments are copied at every launch.
inline constexpr int kFewSources = 8;
inline constexpr int kMostSources = 480;
static_assert(sizeof(FoldArgs<kMostSources>) <= 4096);

// Sets the range of whole vectors. `differences`: the bits in which pointers differ from `dst`.
template <typename Stored, typename Args>
MPI_GDR_PORTABLE void split(Args& out, std::uintptr_t dst, std::uintptr_t differences) {
  const std::uintptr_t before = (sizeof(Vector) - dst % sizeof(Vector)) % sizeof(Vector);
  out.head = out.vectors = 0;
  if (differences % sizeof(Vector) == 0 && before % sizeof(Stored) == 0) {
    const std::uint64_t head = before / sizeof(Stored);
    out.head = head < out.count ? head : out.count;
    out.vectors = (out.count - out.head) / (sizeof(Vector) / sizeof(Stored));
  }
}

// `any`: the bits of all addresses. Throws InvalidUsage.
template <typename Stored>
void check_aligned(std::uintptr_t any, DataType dtype) {
  if (any % alignof(Stored) != 0)
    fail(ErrorCode::InvalidUsage, "dtype=", name(dtype), ": memory that is not aligned to ", alignof(Stored),
         " bytes, as its elements must be on a device");
}

// On the host. Throws InvalidUsage for misaligned elements, which a device cannot read.
template <typename Codec, int kCapacity>
FoldArgs<kCapacity> fold_args(const ReduceArgs& args) {
  using Stored = typename Codec::Stored;
  FoldArgs<kCapacity> out;
  out.dst = args.dst;
  out.count = args.count;
  out.factor = args.factor;
  out.divisor = args.divisor;
  out.source_count = args.source_count;
  const auto dst = reinterpret_cast<std::uintptr_t>(args.dst);
  std::uintptr_t any = dst, differences = 0;
  for (int k = 0; k < args.source_count; ++k) {
    out.sources[k] = args.sources[k];
    const auto source = reinterpret_cast<std::uintptr_t>(args.sources[k]);
    any |= source;
    differences |= source ^ dst;
  }
  check_aligned<Stored>(any, args.dtype);
  split<Stored>(out, dst, differences);
  return out;
}

// Calls launch() with the smaller or larger kind of arguments. On the host. Throws InvalidUsage.
template <typename Codec, typename Launch>
void with_fold_args(const ReduceArgs& args, Launch launch) {
  if (args.source_count <= kFewSources)
    launch(fold_args<Codec, kFewSources>(args));
  else if (args.source_count <= kMostSources)
    launch(fold_args<Codec, kMostSources>(args));
  else
    fail(ErrorCode::InvalidUsage, "source_count=", args.source_count,
         ": a reduction on a device takes at most ", kMostSources, " sources");
}

// The number of threads with work.
template <typename Codec, int kCapacity>
std::uint64_t useful_threads(const FoldArgs<kCapacity>& args) {
  const std::uint64_t singles = args.count - args.vectors * (sizeof(Vector) / sizeof(typename Codec::Stored));
  return args.vectors > singles ? args.vectors : singles;
}

template <typename Access>
MPI_GDR_PORTABLE void write(Access* to, Access value) {
  *to = value;
}
#ifdef __CUDA_ARCH__
// nvcc would store the words one by one.
template <>
MPI_GDR_PORTABLE inline void write(Vector* to, Vector value) {
  asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
#endif

template <typename Access, typename Stored, int kCapacity>
MPI_GDR_PORTABLE void put(const FoldArgs<kCapacity>& args, std::uint64_t at, Access value) {
  write(reinterpret_cast<Access*>(static_cast<Stored*>(args.dst) + at), value);
}

// Folds the elements of one access at element `at`. Access: Vector, or Stored for a single one.
template <typename Access, typename Codec, typename Op, bool kScaled, typename Args, typename Scale>
MPI_GDR_PORTABLE void fold_access(const Args& args, const Scale& scaling, std::uint64_t at) {
  using Stored = typename Codec::Stored;
  using Folded = typename Codec::Folded;
  constexpr std::size_t kLanes = sizeof(Access) / sizeof(Stored);
  struct Lanes {
    Stored lane[kLanes];
  };
  Folded partial[kLanes] = {};
  for (int k = 0; k < args.source_count; k += kLoadsInFlight) {
    Access loaded[kLoadsInFlight];
    MPI_GDR_UNROLL_SOURCES
    for (int j = 0; j < kLoadsInFlight; ++j)
      if (k + j < args.source_count)
        loaded[j] = *reinterpret_cast<const Access*>(static_cast<const Stored*>(args.sources[k + j]) + at);
    MPI_GDR_UNROLL_SOURCES
    for (int j = 0; j < kLoadsInFlight; ++j) {
      if (k + j >= args.source_count) continue;
      const Lanes lanes = std::bit_cast<Lanes>(loaded[j]);
      for (std::size_t i = 0; i < kLanes; ++i) {
        Folded next = Codec::load(lanes.lane[i]);
        if constexpr (kScaled) next = scaling.before(next);
        partial[i] = k + j == 0 ? next : Op::apply(partial[i], next);
      }
    }
  }
  Lanes lanes;
  if constexpr (kScaled)
    for (Folded& each : partial) each = scaling.after(each);
  for (std::size_t i = 0; i < kLanes; ++i) lanes.lane[i] = Codec::store(partial[i]);
  put<Access, Stored>(args, at, std::bit_cast<Access>(lanes));
}

// Thread `first` of `step`. An element has one thread: dst may equal a source. Args: FoldArgs, ResolvedFold.
template <typename Codec, typename Op, bool kScaled, typename Args>
MPI_GDR_PORTABLE void fold_elements(const Args& args, std::uint64_t first, std::uint64_t step) {
  using Stored = typename Codec::Stored;
  const std::conditional_t<kScaled, Scaling<typename Codec::Folded>, NoScaling> scaling(args);
  constexpr std::uint64_t kLanes = sizeof(Vector) / sizeof(Stored);
  for (std::uint64_t v = first; v < args.vectors; v += step)
    fold_access<Vector, Codec, Op, kScaled>(args, scaling, args.head + v * kLanes);
  const std::uint64_t in_vectors = args.vectors * kLanes, singles = args.count - in_vectors;
  for (std::uint64_t s = first; s < singles; s += step)
    fold_access<Stored, Codec, Op, kScaled>(args, scaling, s < args.head ? s : s + in_vectors);
}

}  // namespace mpi_gdr::kernels::MPI_GDR_ISA
