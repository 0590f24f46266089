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

namespace mpigdr {

class PickleWriter {
 public:
  PickleWriter();

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  // Bytes that are no UTF-8 (a text that was cut) become '?'.
  void text(std::string_view value);
  void integer(std::int64_t value);
  void real(double value);
  void boolean(bool value);
  void none();
  // Joins the two values written last.
  void pair();

  // The pickle; nothing may be written afterwards.
  std::string finish();

 private:
  void little_endian(std::uint64_t value, int bytes);
  std::string out_;
};

}  // namespace mpigdr
