// Reads packed fields from other processes, untrusted until checked: throws Error(Remote) naming the record,
// the field, its text and the expected one. Not thread-safe.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace mpi_gdr {

// Packs strings of any content, and back. unpack() throws Internal on text that pack() did not make.
std::string pack(const std::vector<std::string>& fields);
std::vector<std::string> unpack(const std::string& text);

inline constexpr std::int64_t kMaxPid = 1 << 22;  // Linux's limit

class RecordReader {
 public:
  RecordReader(std::string what, const std::string& text);

  bool more() const { return at_ < fields_.size(); }
  const std::string& text(const char* field);
  bool blank();                  // skips an empty field; false: the next one is not empty
  bool flag(const char* field);  // "0" or "1"
  template <std::integral T>
  T number(const char* field, T low = std::numeric_limits<T>::min(), T high = std::numeric_limits<T>::max()) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(number_in<Wide>(field, low, high));
  }
  // Requires that no field is left: another version may have written more.
  void end() const;

 private:
  template <typename T>
  T number_in(const char* field, T low, T high);  // T: one of the two widest types
  [[noreturn]] void bad(const char* field, const std::string& found, const std::string& expected) const;

  const std::string what_;
  std::vector<std::string> fields_;
  std::size_t at_ = 0;
};

// For messages: truncated, without control characters.
std::string shown(const std::string& text);

}  // namespace mpi_gdr
