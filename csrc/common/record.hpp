// Records that processes give each other as text: packed fields, read one by one, and hostile until checked.
//
//   RecordReader record("a rank's bootstrap record", text);
//   p.pid = record.number("pid", 1, kMaxPid);
//   record.end();
//
// Every member of the reader throws Error(Remote) that names the record, the field, what stands there and
// what was expected. Not thread-safe.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace mpi_gdr {

// Strings of any content as one, and back. unpack() throws Internal on text that pack() did not make.
std::string pack(const std::vector<std::string>& fields);
std::vector<std::string> unpack(const std::string& text);

inline constexpr std::int64_t kMaxPid = 1 << 22;  // of Linux

class RecordReader {
 public:
  // `what` it is, for messages.
  RecordReader(std::string what, const std::string& text);

  bool more() const { return at_ < fields_.size(); }
  const std::string& text(const char* field);
  bool blank();                  // an empty field is next: passes over it
  bool flag(const char* field);  // "0" or "1"
  // A whole decimal number in low..high.
  template <std::integral T>
  T number(const char* field, T low = std::numeric_limits<T>::min(), T high = std::numeric_limits<T>::max()) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(number_in<Wide>(field, low, high));
  }
  // That there is no further field. Another version of this software may have written more.
  void end() const;

 private:
  template <typename T>
  T number_in(const char* field, T low, T high);  // of the two widest types
  [[noreturn]] void bad(const char* field, const std::string& found, const std::string& expected) const;

  const std::string what_;
  std::vector<std::string> fields_;
  std::size_t at_ = 0;
};

// For messages: cut, and without what a terminal may take for more than text.
std::string shown(const std::string& text);

}  // namespace mpi_gdr
