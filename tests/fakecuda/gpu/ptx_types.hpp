// PTX's types. Registers hold bits as unsigned integers of their width, which instructions interpret.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fakecuda::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f16 = _Float16;
using f32 = float;
using f64 = double;

template <std::size_t kBytes>
using Unsigned =
    std::conditional_t<kBytes == 1, u8,
                       std::conditional_t<kBytes == 2, u16, std::conditional_t<kBytes == 4, u32, u64>>>;

// T's bits in a register of its width.
template <typename T>
using Bits = Unsigned<sizeof(T)>;

// The type that converts to a wider register: signed integers are sign-extended.
template <typename T>
using Value = std::conditional_t<std::is_integral_v<T>, T, Bits<T>>;

inline constexpr u64 kPoison = 0xcdcdcdcdcdcdcdcd;  // of registers that were never written

}  // namespace fakecuda::ptx
