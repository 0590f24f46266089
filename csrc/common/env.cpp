#include "common/env.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "common/bytes_text.hpp"
#include "common/error.hpp"

extern char** environ;

namespace mpi_gdr {
namespace {

using Variable = Env::Variable;

[[noreturn]] void bad(const Variable& variable, const std::string& text) {
  fail(ErrorCode::InvalidUsage, variable.name, "=", text, " is not valid: expected ", variable.allowed);
}

struct Text {
  std::string expected;
  std::string allowed() const { return expected; }
  std::string operator()(std::string& field, const Variable&, const std::string& text) const {
    return field = text;
  }
};

struct Integer {
  int low, high;
  std::string allowed() const { return std::to_string(low) + ".." + std::to_string(high); }
  std::string operator()(int& field, const Variable& variable, const std::string& text) const {
    char* end = nullptr;
    errno = 0;
    const long number = std::strtol(text.c_str(), &end, 10);
    if (*end || errno || number < low || number > high) bad(variable, text);
    return std::to_string(field = static_cast<int>(number));
  }
};

struct Seconds {
  bool or_zero = false;
  std::string allowed() const { return or_zero ? "seconds >= 0" : "seconds > 0"; }
  template <typename Field>
  std::string operator()(Field& field, const Variable& variable, const std::string& text) const {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (*end || !(number > 0 || (or_zero && number == 0)) || number > 1e9) bad(variable, text);
    field = number;
    return text;
  }
};

struct Bytes {
  bool or_zero = false;
  std::string allowed() const {
    return std::string("bytes ") + (or_zero ? ">=" : ">") + " 0, suffix K, M or G";
  }
  template <typename Field>
  std::string operator()(Field& field, const Variable& variable, const std::string& text) const {
    const auto number = bytes_of(text);
    if (!number || (*number == 0 && !or_zero) || *number > std::uint64_t{1} << 40) bad(variable, text);
    field = *number;
    return bytes_text(*number);
  }
};

// Names in any case. The field becomes the name if it is a string, else values[i], or i without `values`.
struct OneOf {
  std::vector<const char*> names;
  std::vector<int> values;
  std::string allowed() const {
    std::string text = names[0];
    for (std::size_t i = 1; i < names.size(); ++i)
      text += std::string(i + 1 < names.size() ? ", " : " or ") + names[i];
    return text;
  }
  template <typename Field>
  std::string operator()(Field& field, const Variable& variable, const std::string& text) const {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (strcasecmp(text.c_str(), names[i]) == 0) {
        if constexpr (std::is_same_v<Field, std::string>)
          field = names[i];
        else
          field = static_cast<Field>(values.empty() ? static_cast<int>(i) : values[i]);
        return names[i];
      }
    bad(variable, text);
  }
};
OneOf on_off() { return {{"on", "off"}, {true, false}}; }
OneOf auto_on_off() { return {{"auto", "on", "off"}}; }

// 64 digits to 32 bytes. Neither results nor errors show the digits.
struct Secret {
  static std::string allowed() { return "64 hexadecimal digits"; }
  std::string operator()(std::string& field, const Variable& variable, const std::string& text) const {
    const auto digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    const auto good = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), digit));
    if (text.size() != 64 || good != text.size())
      fail(ErrorCode::InvalidUsage, variable.name, " is not valid: expected ", variable.allowed,
           ", and it has ", text.size(), " characters, ", good, " of them hexadecimal digits");
    field.clear();
    for (std::size_t i = 0; i < text.size(); i += 2)
      field += static_cast<char>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16));
    return "(set)";
  }
};

struct Setting {
  Variable variable;  // without a value
  std::function<std::string(Env&, const Variable&, const std::string&)> read;
};

template <typename T, typename Reader>
Setting setting(T Env::* field, const char* name, const char* default_value, Env::Audience audience,
                Env::Ranks ranks, const char* description, const Reader& read) {
  return {{name, default_value, audience, ranks, description, read.allowed()},
          [=](Env& env, const Variable& variable, const std::string& text) {
            return read(env.*field, variable, text);
          }};
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> made = [] {
    std::vector<Setting> all = {
#define SETTING(type, field, variable, initial, audience, ranks, text, ...) \
  setting(&Env::field, variable, initial, Env::Audience::audience, Env::Ranks::ranks, text, __VA_ARGS__),
#include "common/settings.inc"
#undef SETTING
    };
    for (const Collective c : every<Collective>())
      all.push_back({{Env::algorithm_variable(c), "", Env::Audience::Experts, Env::Ranks::Equal,
                      "algorithm of " + std::string(name(c)) + " (default: the selection table)",
                      "a name listed in docs/algorithms.md"},
                     [c](Env& env, const Variable&, const std::string& text) {
                       return env.algorithm[static_cast<int>(c)] = text;
                     }});
    return all;
  }();
  return made;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j)
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string Env::algorithm_variable(Collective collective) {
  return "MPI_GDR_" + std::string(traits(collective).variable) + "_ALGO";
}

Env::Env(const Lookup& lookup) {
  for (const auto& [variable, read] : settings()) {
    const char* given = lookup(variable.name.c_str());
    Variable& mine = table_.emplace_back(variable);
    mine.from_environment = given && *given;
    const std::string text = mine.from_environment ? given : mine.default_value;
    if (!text.empty()) mine.value = read(*this, mine, text);
  }
}

const Env& Env::get() {
  static const Env env([](const char* variable) { return std::getenv(variable); });
  return env;
}

std::vector<std::pair<std::string, std::string>> Env::unknown_variables(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> unknown;
  for (; environment && *environment; ++environment) {
    const char* end = std::strchr(*environment, '=');
    const std::string variable(*environment, end ? end - *environment : std::strlen(*environment));
    if (variable.rfind("MPI_GDR_", 0) != 0) continue;
    if (variable == "MPI_GDR_BUILD_CUDA" || variable == "MPI_GDR_CUDA_ARCHITECTURES") continue;  // setup.py's
    const auto nearest = std::ranges::min_element(
        settings(), {}, [&](const Setting& s) { return edit_distance(variable, s.variable.name); });
    if (nearest->variable.name != variable) unknown.emplace_back(variable, nearest->variable.name);
  }
  return unknown;
}

}  // namespace mpi_gdr
