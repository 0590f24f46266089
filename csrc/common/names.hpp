// kNames<Enum>: the names of an enum's enumerators; those after the last name have none. Thread-safe.
//
//   template <>
//   inline constexpr auto kNames<Bits> = names("any", "order", "exact");
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace mpi_gdr {

template <typename... Text>
constexpr std::array<std::string_view, sizeof...(Text)> names(const Text&... texts) {
  return {texts...};
}
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kNames{};
template <typename Enum>
inline constexpr int kNameCount = static_cast<int>(kNames<Enum>.size());

template <typename Enum>
  requires(kNameCount<Enum> > 0)
constexpr std::string_view name(Enum e) {
  return kNames<Enum>[static_cast<std::size_t>(e)];
}
template <typename Enum>
constexpr std::array<Enum, kNames<Enum>.size()> every() {
  std::array<Enum, kNames<Enum>.size()> all{};
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<Enum>(k);
  return all;
}
template <typename Enum>
constexpr std::optional<Enum> named(std::string_view text) {
  for (const Enum e : every<Enum>())
    if (name(e) == text) return e;
  return std::nullopt;
}

}  // namespace mpi_gdr
