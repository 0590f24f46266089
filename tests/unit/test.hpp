// A unit-test harness in one page, since a compiler is the only prerequisite.
//   TEST(name) { CHECK(a == b); }
// The binary runs all tests, or those whose name contains argv[1], or after a hyphen those without it;
// SIGALRM ends it when a test hangs.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace unit {
struct Test {
  const char* name;
  std::string file;
  void (*body)();
};
inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}
struct Registrar {
  Registrar(const char* name, const char* file, void (*body)()) {
    registry().push_back({name, std::filesystem::path(file).stem(), body});
  }
};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // several times slower
#else
inline constexpr bool kSanitized = false;
#endif

#ifdef UNIT_JOINED
inline constexpr bool kJoined = true;
#else
inline constexpr bool kJoined = false;
#endif

// Several files may be joined in one program (CMakeLists.txt): those tests run whose file has the program's
// name.
inline int run(int argc, char** argv, unsigned seconds_per_test = 240) {
  int passed = 0, failed = 0;
  const std::string program = std::filesystem::path(argv[0]).filename();
  const char* const part = argc > 1 ? argv[1] : "";
  for (const Test& t : registry()) {
    if (kJoined && t.file != program) continue;
    if (*part == '-' ? !!std::strstr(t.name, part + 1) : !std::strstr(t.name, part)) continue;
    alarm(seconds_per_test);
    try {
      t.body();
      ++passed;
    } catch (const std::exception& e) {
      ++failed;
      std::printf("FAILED %s: %s\n", t.name, e.what());
    }
    alarm(0);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed ? 1 : 0;
}
}  // namespace unit

#define TEST(name)                                                       \
  static void test_##name();                                             \
  static unit::Registrar registrar_##name(#name, __FILE__, test_##name); \
  static void test_##name()

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      std::ostringstream text_;                                \
      text_ << __FILE__ << ":" << __LINE__ << ": " #condition; \
      throw std::runtime_error(text_.str());                   \
    }                                                          \
  } while (0)

// Passes if `expression` throws an E whose text contains `part`.
#define CHECK_THROWS(expression, E, part)                                                      \
  do {                                                                                         \
    bool threw_ = false;                                                                       \
    try {                                                                                      \
      (void)(expression);                                                                      \
    } catch (const E& e_) {                                                                    \
      threw_ = true;                                                                           \
      if (!std::strstr(e_.what(), part))                                                       \
        throw std::runtime_error(std::string("message lacks '") + (part) + "': " + e_.what()); \
    }                                                                                          \
    if (!threw_) throw std::runtime_error(#expression " did not throw " #E);                   \
  } while (0)

#define UNIT_PROGRAM() \
  int main(int argc, char** argv) { return unit::run(argc, argv); }
// Of tests that leak failed operations on purpose: a peer may still write to their buffers.
#define UNIT_PROGRAM_THAT_LEAKS()                                                          \
  extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() { \
    return "detect_leaks=0";                                                               \
  }                                                                                        \
  UNIT_PROGRAM()
#ifdef UNIT_JOINED
#define UNIT_MAIN()
#define UNIT_MAIN_THAT_LEAKS()
#else
#define UNIT_MAIN UNIT_PROGRAM
#define UNIT_MAIN_THAT_LEAKS UNIT_PROGRAM_THAT_LEAKS
#endif
