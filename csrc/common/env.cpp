#include "common/env.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "common/error.hpp"

extern char** environ;

namespace mpigdr {
namespace {

// One row per variable: how to parse it into an Env and how to print what is in force.
struct Setting {
  std::string name, default_value, allowed, description;
  std::function<void(Env&, const Setting&, const std::string&)> parse;
  bool secret = false;  // its value is never shown
};
using Parse = decltype(Setting::parse);

[[noreturn]] void bad(const Setting& row, const std::string& value) {
  fail(ErrorCode::InvalidUsage, row.name, "=", value, " is not valid: expected ", row.allowed);
}

std::uint64_t parse_bytes(const Setting& row, const std::string& value) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(value.c_str(), &end, 10);
  const std::size_t suffix = *end ? std::strcspn("kmg", std::string(1, std::tolower(*end)).c_str()) : 3;
  const std::uint64_t unit = suffix < 3 ? std::uint64_t{1} << (10 * (suffix + 1)) : 1;
  if (suffix < 3) ++end;
  const bool digits = !value.empty() && std::isdigit(static_cast<unsigned char>(value[0]));
  if (!digits || *end || errno || number == 0 || number > (std::uint64_t{1} << 40) / unit) bad(row, value);
  return number * unit;
}

int parse_int(const Setting& row, const std::string& value, int low, int high) {
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end || errno || number < low || number > high) bad(row, value);
  return static_cast<int>(number);
}

// 64 digits to 32 bytes. An error does not show the value.
std::string parse_secret(const Setting& row, const std::string& value) {
  const auto digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  const auto good = static_cast<std::size_t>(std::count_if(value.begin(), value.end(), digit));
  if (value.size() != 64 || good != value.size())
    fail(ErrorCode::InvalidUsage, row.name, " is not valid: expected ", row.allowed, ", and it has ",
         value.size(), " characters, ", good, " of them hexadecimal digits");
  std::string bytes;
  for (std::size_t i = 0; i < value.size(); i += 2)
    bytes += static_cast<char>(std::strtoul(value.substr(i, 2).c_str(), nullptr, 16));
  return bytes;
}

double parse_seconds(const Setting& row, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end || !(number > 0) || number > 1e9) bad(row, value);
  return number;
}

// Parsers of a field.
using SettingRef = const Setting&;
using TextRef = const std::string&;

Parse as_text(std::string Env::* field) {
  return [=](Env& env, SettingRef, TextRef value) { env.*field = value; };
}

Parse as_integer(int Env::* field, int low, int high) {
  return [=](Env& env, SettingRef row, TextRef value) { env.*field = parse_int(row, value, low, high); };
}

Parse as_seconds(double Env::* field) {
  return [=](Env& env, SettingRef row, TextRef value) {
    env.*field = value == "0" ? 0 : parse_seconds(row, value);
  };
}

Parse as_bytes(std::optional<std::uint64_t> Env::* field) {
  return [=](Env& env, SettingRef row, TextRef value) {
    env.*field = value == "0" ? 0 : parse_bytes(row, value);
  };
}

template <typename T>
Parse as_choice(T Env::* field, std::vector<std::pair<const char*, T>> choices) {
  return [=](Env& env, SettingRef row, TextRef value) {
    for (const auto& [name, chosen] : choices)
      if (strcasecmp(value.c_str(), name) == 0) {
        env.*field = chosen;
        return;
      }
    bad(row, value);
  };
}

Parse as_either(bool Env::* field, const char* yes = "on", const char* no = "off") {
  return as_choice<bool>(field, {{yes, true}, {no, false}});
}

void parse_debug(Env& env, SettingRef row, TextRef value) {
  env.check_calls = strcasecmp(value.c_str(), "DETAIL") == 0;
  as_choice(&Env::debug, {{"WARN", LogLevel::Warn},
                          {"INFO", LogLevel::Info},
                          {"DETAIL", LogLevel::Info},
                          {"TRACE", LogLevel::Trace}})(env, row, value);
}

std::vector<Setting> make_rows() {
  std::vector<Setting> rows = {
      {"MPI_GDR_DEBUG", "WARN", "WARN, INFO, DETAIL or TRACE",
       "log level; INFO: start-up block, DETAIL: also compares calls between ranks, TRACE: every operation",
       parse_debug},
      {"MPI_GDR_DEBUG_FILE", "", "a path; %h = host, %p = process id", "where the log goes (default: stderr)",
       as_text(&Env::debug_file)},
      {"MPI_GDR_TIMEOUT", "", "seconds > 0",
       "deadline of operations whose call has none (default: the group's timeout)",
       [](Env& e, SettingRef r, TextRef v) { e.timeout_seconds = parse_seconds(r, v); }},
      {"MPI_GDR_HEARTBEAT", "300", "seconds >= 0",
       "silence of a rank after which it counts as lost; 0: never", as_seconds(&Env::heartbeat_seconds)},
      {"MPI_GDR_ORPHAN_GRACE", "60", "seconds >= 0",
       "how long a rank stays when its torchrun agent has ended; 0: to its own end",
       as_seconds(&Env::orphan_seconds)},
      {"MPI_GDR_BOOTSTRAP", "auto", "auto, launcher or store", "how MPI starts",
       as_choice(&Env::bootstrap, {{"auto", BootstrapMode::Auto},
                                   {"launcher", BootstrapMode::Launcher},
                                   {"store", BootstrapMode::Store}})},
      {"MPI_GDR_SECRET", "", "64 hexadecimal digits",
       "secret of the launch, equal on all ranks: signs what they tell each other before MPI runs",
       [](Env& e, SettingRef r, TextRef v) { e.secret = parse_secret(r, v); }, true},
      {"MPI_GDR_MPI_LIBRARY", "", "a path, or a name for the dynamic loader",
       "the MPI library to use; read by the Python side", as_text(&Env::mpi_library)},
      {"MPI_GDR_MASTER_ADDR", "", "a host name or address",
       "address that rank 0 announces when MASTER_ADDR is not set", as_text(&Env::master_addr)},
      {"MPI_GDR_BITS", "any", "any, order or exact",
       "order: reductions that round fold the contributions in rank order, whatever the algorithm and the "
       "nodes; exact: sums are rounded once, whatever the order",
       as_choice(&Env::bits, {{"any", Bits::Any}, {"order", Bits::Order}, {"exact", Bits::Exact}})},
      {"MPI_GDR_AS", "", "gloo", "a backend of torch 2.14 or newer whose name brings this one instead",
       as_choice(&Env::as_gloo, {{"gloo", true}})},
      {"MPI_GDR_RANKS_PER_GPU", "0", "0..1000",
       "ranks that share a GPU: each sees its own alone; 0: GPUs as they are",
       as_integer(&Env::ranks_per_gpu, 0, 1000)},
  };
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    rows.push_back({Env::algorithm_variable(collective), "", "a name listed in docs/algorithms.md",
                    "algorithm of " + std::string(name(collective)) + " (default: the selection table)",
                    [c](Env& e, SettingRef, TextRef v) { e.algorithm[c] = v; }});
  }
  using Choice = Env::Choice;
  const std::vector<Setting> others = {
      {"MPI_GDR_SELECT", "", "rows such as all_reduce:0-4K:flag, separated by #",
       "rows of the selection table, tried before those of MPI_GDR_TUNING", as_text(&Env::select)},
      {"MPI_GDR_TUNING", "", "a path",
       "file with rows of the selection table, tried before the built-in ones", as_text(&Env::tuning_file)},
      {"MPI_GDR_ADAPT", "on", "on or off",
       "whether `adaptive` runs what it has measured to be faster; rows of your own switch it off",
       as_either(&Env::adapt)},
      {"MPI_GDR_CHUNK_BYTES", "256K", "bytes > 0, suffix K, M or G", "message size of pipelined algorithms",
       [](Env& e, SettingRef r, TextRef v) { e.chunk_bytes = parse_bytes(r, v); }},
      {"MPI_GDR_LANES", "4", "1..16", "independent lanes per operation at most",
       as_integer(&Env::lanes, 1, 16)},
      {"MPI_GDR_RANKS_PER_NODE", "0", "0..1000000",
       "take each so many consecutive ranks for a node of their own, to try algorithms for several "
       "nodes on one; 0: nodes as they are",
       as_integer(&Env::ranks_per_node, 0, 1000000)},
      {"MPI_GDR_MAX_IN_FLIGHT", "32", "1..1024", "collectives of a group that run at the same time",
       as_integer(&Env::max_in_flight, 1, 1024)},
      {"MPI_GDR_NAP_US", "200", "1..100000", "longest nap of the progress thread in microseconds",
       as_integer(&Env::nap_us, 1, 100000)},
      {"MPI_GDR_IDLE_PROGRESS", "auto", "auto, on or off",
       "whether a thread enters MPI while nothing else of the process does",
       as_choice(&Env::idle_progress, {{"auto", Choice::Auto}, {"on", Choice::On}, {"off", Choice::Off}})},
      {"MPI_GDR_SHM", "on", "on or off", "whether ranks of a node share memory, besides what MPI does",
       as_either(&Env::node_memory)},
      {"MPI_GDR_P2P", "auto", "auto, shm or mpi", "how messages between ranks of a node travel",
       as_choice(&Env::messages,
                 {{"auto", MessagePath::Auto}, {"shm", MessagePath::Shm}, {"mpi", MessagePath::Mpi}})},
      {"MPI_GDR_GROUP_MEMORY", "", "bytes >= 0, suffix K, M or G",
       "tensors that ranks of a node may map, per rank (default: a quarter of the host's memory)",
       as_bytes(&Env::group_memory)},
      {"MPI_GDR_DEVICE_GROUP_MEMORY", "", "bytes >= 0, suffix K, M or G",
       "tensors that ranks of a node may map, on each device of a rank (default: no limit)",
       as_bytes(&Env::device_group_memory)},
      {"MPI_GDR_BLOCKING_WAIT", "off", "on or off",
       "whether Work.wait() blocks the CPU for tensors of a device, too", as_either(&Env::blocking_wait)},
      {"MPI_GDR_ASYNC_ERROR", "exit", "exit or raise",
       "what follows a failure on a device after wait() has returned: the process ends, or the next "
       "call on the group raises",
       as_either(&Env::end_on_device_failure, "exit", "raise")},
      {"MPI_GDR_GPU_AWARE", "off", "off, auto or on",
       "whether MPI is given addresses of a device's memory (auto: if it says that it takes them)",
       as_choice(&Env::gpu_aware, {{"auto", Choice::Auto}, {"on", Choice::On}, {"off", Choice::Off}})},
      {"MPI_GDR_IPC", "on", "on or off", "whether devices of a node share staging memory",
       as_either(&Env::device_sharing)},
      {"MPI_GDR_SIMD", "auto", "auto, baseline, avx2, avx512 or avx512_bf16",
       "instructions of the reduction kernels (auto: the widest that the processor has)",
       as_choice<std::string>(&Env::simd, {{"auto", "auto"},
                                           {"baseline", "baseline"},
                                           {"avx2", "avx2"},
                                           {"avx512", "avx512"},
                                           {"avx512_bf16", "avx512_bf16"}})},
      {"MPI_GDR_CUDA", "auto", "auto, on or off",
       "CUDA tensors by the CUDA library (auto: if it was built and there is a device)",
       as_choice(&Env::cuda, {{"auto", Choice::Auto}, {"on", Choice::On}, {"off", Choice::Off}})},
      {"MPI_GDR_FLIGHT_LOG", "2000", "0..1000000; 0: off", "operations that the flight log keeps",
       as_integer(&Env::flight_log, 0, 1000000)},
      {"MPI_GDR_FLIGHT_DIR", "", "a path",
       "folder of the flight log's files (default: one per job under TMPDIR or /tmp)",
       as_text(&Env::flight_dir)},
      {"MPI_GDR_FLIGHT_SIGNAL", "SIGUSR2", "SIGUSR1, SIGUSR2 or off",
       "signal that has the flight log written, unless the program handles it",
       as_choice(&Env::flight_signal, {{"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"off", 0}})},
      {"MPI_GDR_TRACE", "", "a path; %r = rank, %h = host, %p = process id",
       "file of a Chrome trace of operations and lanes (default: none)", as_text(&Env::trace)},
      {"MPI_GDR_TRACE_EVENTS", "32768", "1..10000000",
       "operations, and rounds of lanes, that the trace keeps", as_integer(&Env::trace_events, 1, 10000000)},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

const std::vector<Setting>& rows() {
  static const std::vector<Setting> table = make_rows();
  return table;
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
  static constexpr const char* names[kCollectiveCount] = {"ALLREDUCE", "BROADCAST",      "REDUCE",
                                                          "ALLGATHER", "REDUCE_SCATTER", "ALLTOALL",
                                                          "BARRIER",   "GATHER",         "SCATTER"};
  return std::string("MPI_GDR_") + names[static_cast<int>(collective)] + "_ALGO";
}

Env::Env(const Lookup& lookup) : lookup_(lookup) {
  for (const Setting& r : rows())
    if (const char* value = lookup(r.name.c_str()); value && *value) r.parse(*this, r, value);
}

const Env& Env::get() {
  static const Env env([](const char* variable) { return std::getenv(variable); });
  return env;
}

std::vector<Env::Variable> Env::table() const {
  std::vector<Variable> out;
  for (const Setting& r : rows()) {
    const char* value = lookup_(r.name.c_str());
    const bool set = value && *value;
    out.push_back({r.name, r.default_value, r.allowed, r.description,
                   !set       ? r.default_value
                   : r.secret ? "(set)"
                              : value,
                   set});
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Env::unknown_variables(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> unknown;
  for (; environment && *environment; ++environment) {
    const char* end = std::strchr(*environment, '=');
    const std::string variable(*environment, end ? end - *environment : std::strlen(*environment));
    if (variable.rfind("MPI_GDR_", 0) != 0) continue;
    if (variable == "MPI_GDR_BUILD_CUDA" || variable == "MPI_GDR_CUDA_ARCHITECTURES") continue;  // setup.py's
    const Setting* nearest = nullptr;
    std::size_t best = SIZE_MAX;
    for (const Setting& r : rows())
      if (const std::size_t d = edit_distance(variable, r.name); d < best) best = d, nearest = &r;
    if (best != 0) unknown.emplace_back(variable, nearest->name);
  }
  return unknown;
}

}  // namespace mpigdr
