// A unit-test harness in one page, since a compiler is the only prerequisite.
//   TEST(name) { CHECK(a == b); }
// The binary runs all tests, or those whose name contains argv[1]; SIGALRM ends it when a test hangs.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace unit {
struct Test {
  const char* name;
  void (*body)();
};
inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}
struct Registrar {
  Registrar(const char* name, void (*body)()) { registry().push_back({name, body}); }
};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // several times slower
#else
inline constexpr bool kSanitized = false;
#endif

inline int run(int argc, char** argv, unsigned seconds_per_test = 240) {
  int passed = 0, failed = 0;
  for (const Test& t : registry()) {
    if (argc > 1 && !std::strstr(t.name, argv[1])) continue;
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

#define TEST(name)                                             \
  static void test_##name();                                   \
  static unit::Registrar registrar_##name(#name, test_##name); \
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

#define UNIT_MAIN() \
  int main(int argc, char** argv) { return unit::run(argc, argv); }
