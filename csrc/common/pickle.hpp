// Writes Python pickles (protocol 2, PEP 307) of plain containers without Python: a process whose threads are
// stuck, or hold the GIL, can still say what it was doing. Readable by any pickle.load(), also by one that
// refuses classes.
//
//   PickleWriter p;
//   p.begin_dict();
//   p.text("ranks"); p.begin_list(); p.integer(0); p.integer(1); p.end_list();
//   p.end_dict();
//   write(p.finish());
//
// Keys and values alternate inside a dict. A value like any other: one writer, one thread.
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
  // Bytes that are no UTF-8 (a text that was cut) become '?'.
  void text(std::string_view value);
  void integer(std::int64_t value);
  void boolean(bool value) { out_ += value ? kTrue : kFalse; }
  void none() { out_ += kNone; }
  // Joins the two values written last.
  void pair() { out_ += kTuple2; }

  // The pickle; nothing may be written afterwards.
  std::string finish();

 private:
  // Opcodes as in Python's pickletools.
  static constexpr char kProto = '\x80', kStop = '.', kMark = '(';
  static constexpr char kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']', kAppends = 'e', kTuple2 = '\x86';
  static constexpr char kBinUnicode = 'X', kBinInt = 'J', kLong1 = '\x8a';
  static constexpr char kNone = 'N', kTrue = '\x88', kFalse = '\x89';

  void little_endian(std::uint64_t value, int bytes);
  std::string out_ = {kProto, '\x02'};
};

}  // namespace mpi_gdr
