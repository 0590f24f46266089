#include "job/choice_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iomanip>
#include <locale>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <tuple>

#include "common/error.hpp"
#include "common/fnv1a.hpp"
#include "common/quiet_thread.hpp"
#include "common/record.hpp"
#include "diagnostics/file_writer.hpp"

namespace mpi_gdr {
namespace {

constexpr off_t kMostBytes = 64 * 1024;  // of a file; one with all classes is smaller
constexpr int kFormat = 1;
constexpr double kMostSpeedup = 9e5;                // the rounding of to_text() stays within it
constexpr const char* kTitle = "mpi-gdr choices ";  // "mpi-gdr choices 1: KEY", then to_text()
constexpr const char* kEnding = ".choices";

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t at = line.find(": "); line.starts_with("model name") && at != line.npos)
      return line.substr(at + 2);
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown processor";
}

// Throws unless only this user can have written the file. "": there is none.
std::string read_own_file(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer must not block.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return "";
  if (fd < 0) fail(ErrorCode::System, errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  const auto close = [](const int* open) { ::close(*open); };
  const std::unique_ptr<const int, decltype(close)> closed(&fd, close);
  struct stat status{};
  if (::fstat(fd, &status) != 0) fail(ErrorCode::System, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::System, "it is not a regular file");
  if (status.st_uid != ::geteuid()) fail(ErrorCode::System, "it belongs to uid ", status.st_uid);
  if (status.st_mode & (S_IWGRP | S_IWOTH)) fail(ErrorCode::System, "other users can write to it");
  if (status.st_size > kMostBytes) fail(ErrorCode::System, "it has more than ", kMostBytes, " bytes");
  std::string text(static_cast<std::size_t>(status.st_size) + 1, '\0');
  const ssize_t got = ::read(fd, text.data(), text.size());
  if (got != status.st_size) fail(ErrorCode::System, "it changed while it was read");
  text.pop_back();
  if (text.empty()) fail(ErrorCode::System, "it is empty");
  if (!std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }))
    fail(ErrorCode::System, "it is not a text file");
  return text;
}

ChoiceCache::File read_file(const std::string& path, const std::string& key) {
  ChoiceCache::File file{path, key, {}, ""};
  try {
    const std::string text = read_own_file(path);
    if (text.empty()) return file;
    const std::size_t end = text.find('\n'), colon = text.find(": ");
    if (!text.starts_with(kTitle) || end == text.npos || colon > end)
      fail(ErrorCode::System, "it does not begin with '", kTitle, kFormat, ": '");
    const std::string format = text.substr(std::strlen(kTitle), colon - std::strlen(kTitle));
    if (format != std::to_string(kFormat))
      fail(ErrorCode::System, "it has format ", shown(format), ", expected ", kFormat);
    const std::string found = text.substr(colon + 2, end - colon - 2);
    if (!key.empty() && found != key) fail(ErrorCode::System, "it is for ", shown(found));
    file.key = found;
    file.choices = parse_choices(text.substr(end + 1));
  } catch (const Error& error) {
    file.problem = error.what();
  }
  return file;
}

std::optional<RivalChoices::Report> parse_line(const std::string& line) {
  std::istringstream in(line);
  in.imbue(std::locale::classic());
  std::string collective, memory, rival;
  std::uint64_t from = 0;
  double speedup = 0;
  in >> collective >> from >> memory >> rival >> speedup;
  const auto c = named<Collective>(collective);
  int r = 0;
  while (r < kRivals && rival_name(r) != rival) ++r;
  const bool whole = !in.fail() && in.peek() == std::istringstream::traits_type::eof();
  const bool known = c && r < kRivals && (memory == "group" || memory == "ordinary");
  if (!whole || !known || (from != 0 && !std::has_single_bit(from)) ||
      !(speedup > 0 && speedup <= kMostSpeedup))
    return std::nullopt;
  return RivalChoices::Report{*c, from, RivalChoices::end_of(from), memory == "group", r, speedup};
}

// Set once the user's cache folder has been looked up, which may block.
std::atomic<const ChoiceCache*> users_cache{nullptr};
std::atomic<bool> users_folder_hangs{false};
constexpr std::chrono::seconds kPatience{1};

using Class = std::tuple<Collective, bool, std::uint64_t>;
Class class_of(const RivalChoices::Report& r) { return {r.collective, r.mapped, r.from_bytes}; }

}  // namespace

std::string choices_key(const std::string& library, std::size_t ranks,
                        const std::vector<SharedSetting>& settings) {
  Fnv1a table;
  for (const SharedSetting& setting : settings) table.add(setting.value + '\n');
  static const std::string machine =
      processor() + " | " + std::to_string(std::thread::hardware_concurrency()) + " cores";
  std::istringstream words(machine + " | " + library + " | " + std::to_string(ranks) + " ranks | table " +
                           table.hex());
  std::string key;  // single blanks, as in `mpi-gdr info`
  for (std::string word; words >> word;) key += (key.empty() ? "" : " ") + word;
  return key;
}

std::string to_text(const MeasuredChoices& choices) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (const auto& c : choices)
    out << name(c.collective) << ' ' << c.from_bytes << ' ' << (c.mapped ? "group" : "ordinary") << ' '
        << rival_name(c.rival) << ' ' << std::setprecision(3) << std::min(c.speedup, kMostSpeedup) << '\n';
  out << "end " << choices.size() << '\n';
  return out.str();
}

MeasuredChoices parse_choices(const std::string& text) {
  MeasuredChoices choices;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line == "end " + std::to_string(choices.size()) &&
        in.peek() == std::istringstream::traits_type::eof())
      return choices;
    const auto choice = parse_line(line);
    if (!choice) fail(ErrorCode::System, "choice ", choices.size() + 1, " is damaged: '", shown(line), "'");
    choices.push_back(*choice);
  }
  fail(ErrorCode::System, "its end is missing");
}

std::string ChoiceCache::user_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::string(cache) + "/mpi-gdr";
  // A missing home is not created, and another user's (sudo, containers) is not used.
  const char* const home = std::getenv("HOME");
  struct stat status{};
  const bool own = home && *home == '/' && ::stat(home, &status) == 0 && S_ISDIR(status.st_mode) &&
                   status.st_uid == ::geteuid();
  return own ? std::string(home) + "/.cache/mpi-gdr" : "";
}

std::string ChoiceCache::path_of(const std::string& key) const {
  Fnv1a name;
  name.add(key);
  return folder_ + '/' + name.hex() + kEnding;
}

ChoiceCache::File ChoiceCache::read(const std::string& key) const {
  return folder_.empty() ? File{"", key, {}, ""} : read_file(path_of(key), key);
}

std::vector<ChoiceCache::File> ChoiceCache::all() const {
  std::vector<File> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == kEnding) files.push_back(read_file(at->path().string(), ""));
  std::ranges::sort(files, {}, &File::path);
  return files;
}

std::string ChoiceCache::save(const std::string& key, const MeasuredChoices& choices) const {
  if (folder_.empty()) return "there is no home folder";
  const auto content = [path = path_of(key), key, choices] {
    std::map<Class, RivalChoices::Report> all;
    for (const auto& known : read_file(path, key).choices) all[class_of(known)] = known;
    for (const auto& measured : choices) all[class_of(measured)] = measured;
    MeasuredChoices merged;
    for (const auto& [of, choice] : all) merged.push_back(choice);
    return kTitle + std::to_string(kFormat) + ": " + key + '\n' + to_text(merged);
  };
  static const FileWriter& writer = *new FileWriter;  // its threads may outlive static objects
  return writer.write(path_of(key), content, kPatience, FolderUse::Job).problem;
}

ChoiceCache::File ChoiceCache::read_users(const std::string& key) {
  const auto late = [&] {
    return File{"", key, {}, "the user's cache folder did not respond within a second"};
  };
  if (users_folder_hangs.load(std::memory_order_relaxed)) return late();
  try {
    std::future<File> file = run_apart("mpigdr-file", [key] {
      static const auto* const made = new ChoiceCache;
      users_cache.store(made, std::memory_order_release);
      return made->read(key);
    });
    if (file.wait_for(kPatience) == std::future_status::ready) return file.get();
  } catch (const std::exception& error) {  // no memory, no thread
    return {"", key, {}, error.what()};
  }
  users_folder_hangs.store(true, std::memory_order_relaxed);
  return late();
}

std::string ChoiceCache::save_users(const std::string& key, const MeasuredChoices& choices) {
  const ChoiceCache* const cache = users_cache.load(std::memory_order_acquire);
  if (!cache || users_folder_hangs.load(std::memory_order_relaxed))
    return "the user's cache folder is unavailable";
  return cache->save(key, choices);
}

}  // namespace mpi_gdr
