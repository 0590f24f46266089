// Arithmetic on elements of NCCL's types; the 16-bit floats are added as float and rounded once.
#pragma once

#define MPI_GDR_ISA fakenccl
#include <cstring>

#include "device/kernels/codecs.hpp"
#include "nccl/communicator.hpp"

namespace fakenccl {

// Calls `use` with the codec of the type.
template <typename F>
void with_codec(Type type, F use) {
  namespace codecs = mpi_gdr::kernels::MPI_GDR_ISA;
#define FAKENCCL_CODEC(type, codec) \
  case type:                        \
    return use(codecs::codec{})
  switch (type) {
    FAKENCCL_CODEC(kInt8, PlainCodec<std::int8_t>);
    FAKENCCL_CODEC(kUint8, PlainCodec<std::uint8_t>);
    FAKENCCL_CODEC(kInt32, PlainCodec<std::int32_t>);
    FAKENCCL_CODEC(kUint32, PlainCodec<std::uint32_t>);
    FAKENCCL_CODEC(kInt64, PlainCodec<std::int64_t>);
    FAKENCCL_CODEC(kUint64, PlainCodec<std::uint64_t>);
    FAKENCCL_CODEC(kFloat16, Float16Codec);
    FAKENCCL_CODEC(kFloat32, PlainCodec<float>);
    FAKENCCL_CODEC(kFloat64, PlainCodec<double>);
    FAKENCCL_CODEC(kBfloat16, BFloat16Codec);
  }
}

template <typename Codec>
struct Elements {
  using Stored = typename Codec::Stored;
  using Folded = typename Codec::Folded;
  static constexpr bool kFloats = std::is_floating_point_v<Folded>;

  static Folded load(const std::byte* from) {
    Stored stored;
    std::memcpy(&stored, from, sizeof stored);
    return Codec::load(stored);
  }
  static void store(std::byte* to, Folded value) {
    const Stored stored = Codec::store(value);
    std::memcpy(to, &stored, sizeof stored);
  }
  static Folded combine(int op, Folded a, Folded b) {
    if (op == kMax) return a < b ? b : a;
    if (op == kMin) return b < a ? b : a;
    return static_cast<Folded>(op == kProd ? a * b : a + b);
  }
};

// Copies a rank's input, multiplied as PreMulSum and the average of floats require.
inline void prepare(const Call& call, int ranks, std::byte* to, const std::byte* from, std::size_t n) {
  with_codec(call.type, [&](auto codec) {
    using E = Elements<decltype(codec)>;
    constexpr std::size_t size = sizeof(typename E::Stored);
    auto factor = static_cast<typename E::Folded>(1);
    if (call.op == kPreMulSum)
      factor = E::load(call.factor.device ? static_cast<const std::byte*>(call.factor.device)
                                          : call.factor.value.data());
    else if (E::kFloats && call.op == kAvg)
      factor = static_cast<typename E::Folded>(1) / static_cast<typename E::Folded>(ranks);
    else
      return static_cast<void>(std::memcpy(to, from, n * size));
    for (std::size_t i = 0; i < n * size; i += size)
      E::store(to + i, static_cast<typename E::Folded>(factor * E::load(from + i)));
  });
}

// Reduces what prepare() has written, at `inputs` and every kSlotBytes after it, beginning at rank `first`.
inline void fold(const Call& call, int ranks, int first, std::byte* to, const std::byte* inputs,
                 std::size_t n) {
  with_codec(call.type, [&](auto codec) {
    using E = Elements<decltype(codec)>;
    constexpr std::size_t size = sizeof(typename E::Stored);
    for (std::size_t i = 0; i < n * size; i += size) {
      const auto input = [&](int rank) {
        return E::load(inputs + static_cast<std::size_t>(rank % ranks) * kSlotBytes + i);
      };
      auto value = input(first);
      for (int k = 1; k < ranks; ++k) value = E::combine(call.op, value, input(first + k));
      if (!E::kFloats && call.op == kAvg) value /= static_cast<typename E::Folded>(ranks);
      E::store(to + i, value);
    }
  });
}

}  // namespace fakenccl
