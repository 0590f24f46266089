#include "common/record.hpp"

#include <charconv>
#include <utility>

#include "common/error.hpp"

namespace mpi_gdr {
namespace {

template <typename T>
bool parse(const std::string& text, T low, T high, T& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && value >= low && value <= high;
}

std::vector<std::string> fields_of(const std::string& what, const std::string& text) {
  try {
    return unpack(text);
  } catch (const Error& e) {
    fail(ErrorCode::Remote, what, " is malformed: ", e.what());
  }
}

}  // namespace

std::string pack(const std::vector<std::string>& fields) {
  std::string text;
  for (const auto& field : fields) text += std::to_string(field.size()) + ":" + field;
  return text;
}

std::vector<std::string> unpack(const std::string& text) {
  std::vector<std::string> fields;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t length = 0;
    const std::size_t digits = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - digits < 12)
      length = length * 10 + static_cast<std::size_t>(text[at++] - '0');
    if (at == digits || at >= text.size() || text[at] != ':' || length > text.size() - at - 1)
      fail(ErrorCode::Internal, "malformed packed text at byte ", at, " of ", text.size());
    fields.push_back(text.substr(at + 1, length));
    at += 1 + length;
  }
  return fields;
}

std::string shown(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::string plain = text.substr(0, kMost);
  for (char& c : plain)
    if (c < 0x20 || c == 0x7f) c = '?';
  return text.size() > kMost ? plain + "..." : plain;
}

RecordReader::RecordReader(std::string what, const std::string& text)
    : what_(std::move(what)), fields_(fields_of(what_, text)) {}

const std::string& RecordReader::text(const char* field) {
  if (!more()) bad(field, "missing", "the same version of mpi-gdr on all ranks");
  return fields_[at_++];
}

bool RecordReader::blank() {
  if (!more() || !fields_[at_].empty()) return false;
  ++at_;
  return true;
}

bool RecordReader::flag(const char* field) {
  const std::string& found = text(field);
  if (found != "0" && found != "1") bad(field, "'" + shown(found) + "'", "0 or 1");
  return found == "1";
}

template <typename T>
T RecordReader::number_in(const char* field, T low, T high) {
  T value = 0;
  const std::string& found = text(field);
  if (!parse(found, low, high, value))
    bad(field, "'" + shown(found) + "'",
        "a whole number in " + std::to_string(low) + ".." + std::to_string(high));
  return value;
}

template std::int64_t RecordReader::number_in(const char*, std::int64_t, std::int64_t);
template std::uint64_t RecordReader::number_in(const char*, std::uint64_t, std::uint64_t);

void RecordReader::end() const {
  if (more())
    fail(ErrorCode::Remote, what_, " has ", fields_.size() - at_,
         " field(s) too many; expected the same version of mpi-gdr on all ranks");
}

void RecordReader::bad(const char* field, const std::string& found, const std::string& expected) const {
  fail(ErrorCode::Remote, what_, ": ", field, " is ", found, ", expected ", expected);
}

}  // namespace mpi_gdr
