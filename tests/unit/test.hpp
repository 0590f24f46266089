// A unit-test harness in one page, since a compiler is the only prerequisite, and the headers of most tests.
//   TEST(name) { CHECK(a == b); }
// The binary runs all tests, or those whose name contains argv[1], or after a hyphen those without it;
// SIGALRM ends it when a test hangs.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.hpp"

using namespace std::chrono_literals;

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

// One program may contain several files (CMakeLists.txt); it runs the tests of the file that has the
// program's name.
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

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_pointer_v<T>)
    if (!value) return static_cast<void>(out << "null");
  if constexpr (std::is_null_pointer_v<T>) {
    out << "null";
  } else if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_integral_v<T>) {
    out << +value;
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    out << "'" << std::string_view(value) << "'";
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { value.begin() != value.end(); }) {
    int left = 20;  // elements to print: there may be megabytes
    out << "{ ";
    for (auto at = value.begin(); at != value.end() && left-- > 0; ++at) print(out, *at), out << " ";
    out << (left < 0 ? "...}" : "}");
  } else {
    out << "?";
  }
}

// Whether a condition holds, and the values of a comparison that does not, until the thread's next one. A
// check is a branch and a call: files of hundreds take as long to compile as checks have code.
struct Outcome {
  Outcome(bool holds, const std::string* values = nullptr) : holds(holds), values(values) {}
  explicit operator bool() const { return holds; }
  bool holds;
  const std::string* values;
};

[[noreturn, gnu::noinline]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::runtime_error(file + (":" + std::to_string(line)) + ": " + what);
}
[[noreturn, gnu::noinline]] inline void fail(const char* file, int line, const char* condition,
                                             Outcome outcome) {
  fail(file, line, condition + (outcome.values ? *outcome.values : ""));
}
template <typename T, typename U>
[[gnu::noinline]] Outcome fails(const T& left, const char* sign, const U& right) {
  thread_local std::string values;
  std::ostringstream text;
  print(text, left);
  print(text << " " << sign << " ", right);
  values = ": " + text.str();
  return {false, &values};
}
[[gnu::noinline]] inline void check_contains(const char* file, int line, const std::string& text,
                                             std::string_view part) {
  if (!contains(text, part)) fail(file, line, "no '" + std::string(part) + "' in '" + text + "'");
}

// The left side of a comparison, or all of the condition. A && or || behind it leaves only a bool.
template <typename T>
struct Left {
  const T& value;
  operator Outcome() const { return static_cast<bool>(value); }
  explicit operator bool() const { return static_cast<bool>(value); }
};
struct Decompose {
  template <typename T>
  Left<T> operator<=(const T& value) const {
    return {value};
  }
};
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define UNIT_COMPARISON(sign)                                  \
  template <typename T, typename U>                            \
  Outcome operator sign(const Left<T>& left, const U& right) { \
    if (static_cast<bool>(left.value sign right)) return true; \
    return fails(left.value, #sign, right);                    \
  }
UNIT_COMPARISON(==)
UNIT_COMPARISON(!=)
UNIT_COMPARISON(<)
UNIT_COMPARISON(<=)
UNIT_COMPARISON(>)
UNIT_COMPARISON(>=)
#undef UNIT_COMPARISON
#pragma GCC diagnostic pop

// The code and text of the Error that `body` throws, or "".
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const mpi_gdr::Error& e) {
    return std::string(name(e.code())) + ": " + e.what();
  }
}

// Runs `body(rank)` on a thread each and rethrows the first error.
template <typename Body>
void on_threads(int count, const Body& body) {
  std::vector<std::future<void>> running;
  for (int r = 0; r < count; ++r) running.push_back(std::async(std::launch::async, [&body, r] { body(r); }));
  for (auto& one : running) one.get();
}

// Whether `body` returns true in a child process, which then ends.
template <typename Body>
bool in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A folder of the test's own.
struct Folder {
  Folder() {
    char name[] = "/tmp/mpi_gdr_testXXXXXX";
    if (!mkdtemp(name)) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  std::string path;
};

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
}  // namespace unit

#define TEST(name)                                                       \
  static void test_##name();                                             \
  static unit::Registrar registrar_##name(#name, __FILE__, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (const unit::Outcome outcome_ = unit::Decompose() <= condition; !outcome_) \
      unit::fail(__FILE__, __LINE__, #condition, outcome_);                       \
  } while (0)
#define CHECK_CONTAINS(text, part) unit::check_contains(__FILE__, __LINE__, text, part)

// Passes if `expression` throws an E whose text contains `part`.
#define CHECK_THROWS(expression, E, part)                                          \
  do {                                                                             \
    bool threw_ = false;                                                           \
    try {                                                                          \
      (void)(expression);                                                          \
    } catch (const E& e_) {                                                        \
      threw_ = true;                                                               \
      unit::check_contains(__FILE__, __LINE__, e_.what(), part);                   \
    }                                                                              \
    if (!threw_) unit::fail(__FILE__, __LINE__, #expression " did not throw " #E); \
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
