// Writes Python pickles (protocol 2, PEP 307) of plain containers without Python, for processes whose threads
// are stuck or hold the GIL. Keys and values alternate inside a dict. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpi_gdr {

class PickleWriter {
 public:
  void begin_dict() { out_ += {kEmptyDict, kMark}; }
  void end_dict() { out_ += kSetItems; }
  void begin_list() { out_ += {kEmptyList, kMark}; }
  void end_list() { out_ += kAppends; }
  // Bytes that are not UTF-8 (truncated text) become '?'.
  void text(std::string_view value);
  void integer(std::int64_t value);
  void boolean(bool value) { out_ += value ? kTrue : kFalse; }
  void none() { out_ += kNone; }
  // Joins the last two values.
  void pair() { out_ += kTuple2; }

  // Nothing may be written afterwards.
  std::string finish();

 private:
  static constexpr char kProto = '\x80', kStop = '.', kMark = '(';
  static constexpr char kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']', kAppends = 'e', kTuple2 = '\x86';
  static constexpr char kBinUnicode = 'X', kBinInt = 'J', kLong1 = '\x8a';
  static constexpr char kNone = 'N', kTrue = '\x88', kFalse = '\x89';

  void little_endian(std::uint64_t value, int bytes);
  std::string out_ = {kProto, '\x02'};
};

}  // namespace mpi_gdr
