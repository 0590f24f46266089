#include "common/pickle.hpp"

#include <limits>

namespace mpi_gdr {
namespace {

// Bytes of the UTF-8 character at the front (RFC 3629, section 4); 0: invalid.
std::size_t character(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xc2 && first < 0xe0   ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || s.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

}  // namespace

void PickleWriter::text(std::string_view value) {
  out_ += kBinUnicode;
  little_endian(value.size(), 4);
  while (!value.empty()) {
    const std::size_t length = character(value);
    if (length) {
      out_.append(value.substr(0, length));
    } else {
      out_ += '?';
    }
    value.remove_prefix(length ? length : 1);
  }
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    out_ += kBinInt;
    little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    out_ += kLong1;
    out_ += '\x08';
    little_endian(static_cast<std::uint64_t>(value), 8);
  }
}

std::string PickleWriter::finish() {
  out_ += kStop;
  return std::move(out_);
}

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int byte = 0; byte < bytes; ++byte) out_ += static_cast<char>(value >> (8 * byte));
}

}  // namespace mpi_gdr
