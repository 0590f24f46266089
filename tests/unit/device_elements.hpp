// Random elements whose folds have the same bits on every device, except for the payloads of NaNs.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/types.hpp"

namespace unit {

// Makes all parts of elements finite: which of two NaNs a sum returns depends on the device. NaNs that the
// fold itself makes (infinity minus infinity) are compared by same_but_for_nans().
template <typename T>
void make_finite(std::vector<unsigned char>& bytes, T clear, T set = 0) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T v;
    std::memcpy(&v, &bytes[i], sizeof v);
    v = static_cast<T>((v & ~clear) | set);
    std::memcpy(&bytes[i], &v, sizeof v);
  }
}

inline std::vector<unsigned char> random_elements(mpi_gdr::DataType dtype, std::size_t count,
                                                  std::mt19937& random) {
  std::vector<unsigned char> bytes(count * mpi_gdr::item_size(dtype));
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(random());
  using mpi_gdr::DataType;
  const auto is = [&](auto... types) { return ((dtype == types) || ...); };
  if (is(DataType::Float64, DataType::Complex128)) make_finite<std::uint64_t>(bytes, std::uint64_t{1} << 52);
  if (is(DataType::Float32, DataType::Complex64)) make_finite<std::uint32_t>(bytes, 1u << 23);
  if (is(DataType::Float16, DataType::Complex32)) make_finite<std::uint16_t>(bytes, 1u << 10);
  if (is(DataType::BFloat16)) make_finite<std::uint16_t>(bytes, 1u << 7);
  if (is(DataType::Float8E4M3FN)) make_finite<std::uint8_t>(bytes, 1u << 3);
  if (is(DataType::Float8E5M2)) make_finite<std::uint8_t>(bytes, 1u << 2);
  if (is(DataType::Float8E4M3FNUZ, DataType::Float8E5M2FNUZ)) make_finite<std::uint8_t>(bytes, 0, 1);
  if (is(DataType::Float8E8M0FNU)) make_finite<std::uint8_t>(bytes, 1);
  for (unsigned char& b : bytes)
    if (is(DataType::Bool) && b % 3 == 0) b = 0;
  return bytes;
}

inline std::size_t alignment_of(mpi_gdr::DataType dtype) {
  return mpi_gdr::is_complex(dtype) ? mpi_gdr::item_size(dtype) / 2 : mpi_gdr::item_size(dtype);
}

// `bits`: of a part of an element.
inline bool is_nan(mpi_gdr::DataType dtype, std::uint64_t bits) {
  using mpi_gdr::DataType;
  const auto is = [&](auto... types) { return ((dtype == types) || ...); };
  if (is(DataType::Float64, DataType::Complex128))
    return (bits & ~(std::uint64_t{1} << 63)) > std::uint64_t{0x7ff} << 52;
  if (is(DataType::Float32, DataType::Complex64)) return (bits & 0x7fffffffu) > 0x7f800000u;
  if (is(DataType::Float16, DataType::Complex32)) return (bits & 0x7fffu) > 0x7c00u;
  if (is(DataType::BFloat16)) return (bits & 0x7fffu) > 0x7f80u;
  if (is(DataType::Float8E4M3FN)) return (bits & 0x7fu) == 0x7fu;
  return is(DataType::Float8E5M2) && (bits & 0x7fu) > 0x7cu;  // others: no NaN, or one pattern only
}

inline bool same_but_for_nans(mpi_gdr::DataType dtype, const std::vector<unsigned char>& a,
                              const std::vector<unsigned char>& b) {
  const std::size_t size = alignment_of(dtype);
  for (std::size_t i = 0; i + size <= a.size(); i += size) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, &a[i], size);
    std::memcpy(&y, &b[i], size);
    if (x != y && !(is_nan(dtype, x) && is_nan(dtype, y))) return false;
  }
  return a.size() == b.size();
}

}  // namespace unit
