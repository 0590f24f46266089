// Parsing of /proc/PID/stat.
#include <iterator>

#include "bootstrap/process_id.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

std::string stat_text(const std::string& name, char state, unsigned flags) {
  return "4711 (" + name + ") " + state + " 1 4711 4711 0 -1 " + std::to_string(flags) +
         " 9 0 0 0 1 2 0 0 20 0 3 0 987654 123 45";
}

}  // namespace

TEST(the_stat_of_a_process_is_read) {
  const ProcessStat plain = parse_process_stat(stat_text("python", 'S', 0x400100));
  CHECK(plain.state == 'S' && plain.started == 987654 && !plain.signalled);
  const ProcessStat odd = parse_process_stat(stat_text("a) R (b", 'T', 0x404));
  CHECK(odd.state == 'T' && odd.started == 987654 && odd.signalled);
  for (const char* text : {"", ")", "1 (x)", "1 (x) ", "4711 (x"})
    CHECK(parse_process_stat(text).state == '?');
  const ProcessStat cut = parse_process_stat("1 (x) S 1 2");
  CHECK(cut.state == 'S' && cut.started == 0);
  const ProcessStat own = parse_process_stat(unit::content("/proc/self/stat"));
  CHECK(own.state == 'R' && own.started == own_process().started && !own.signalled);
}

TEST(a_core_dump_is_seen) {
  const std::string before = "Name:\tpython\nState:\tD (disk sleep)\n", after = "THP_enabled:\t1\n";
  CHECK(dumps_core(before + "CoreDumping:\t1\n" + after));
  CHECK(!dumps_core(before + "CoreDumping:\t0\n" + after) && !dumps_core(before + after) && !dumps_core(""));
  CHECK(!dumps_core("Name:\tCoreDumping:\t1 \n" + before));
  const std::string own = unit::content("/proc/self/status");
  CHECK(!dumps_core(own) && own.find("\nCoreDumping:\t0\n") != std::string::npos);
}

UNIT_MAIN()
