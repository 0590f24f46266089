#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/host_name.hpp"
#include "diagnostics/trace.hpp"

namespace mpi_gdr {
namespace {

constexpr const char* kChannelNames[kChannelCount] = {"collectives", "accelerator", "messages"};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string microseconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%lld.%03lld", ns < 0 ? "-" : "",
                static_cast<long long>(std::abs(ns) / 1000), static_cast<long long>(std::abs(ns) % 1000));
  return text;
}

class Object {
 public:
  Object& number(std::string_view key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  Object& text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  Object& raw(std::string_view key, std::string_view value) {
    text_ += text_.size() > 1 ? ", \"" : "\"";
    ((text_ += key) += "\": ") += value;
    return *this;
  }
  std::string end() const { return text_ + '}'; }

 private:
  std::string text_ = "{";
};

// Assigns spans, sorted by their begin, to as few rows as possible without overlap.
class Rows {
 public:
  int row_of(std::int64_t begin, std::int64_t end) {
    std::size_t row = 0;
    while (row < ends_.size() && ends_[row] > begin) ++row;
    if (row == ends_.size()) ends_.push_back(end);
    ends_[row] = end;
    return static_cast<int>(row);
  }

 private:
  std::vector<std::int64_t> ends_;
};

// Tracks are shown in ascending order. `kind` is 0 for the queue, else 1 + channel. `part` and `lane` are -1
// for a track of whole operations.
using Track = std::tuple<int, int, int, int>;  // kind, row, part, lane

std::string title(const Track& track) {
  const auto [kind, row, part, lane] = track;
  std::string text = kind == 0 ? "queue" : kChannelNames[kind - 1];
  if (row > 0) text += ' ' + std::to_string(row + 1);
  if (part > 0) text += " part " + std::to_string(part + 1);
  if (lane >= 0) text += " lane " + std::to_string(lane);
  return text;
}

struct Event {
  Track track;
  std::int64_t begin, end;
  std::string name, category, arguments;
};

std::string name_of(const TracedRound& round) {
  std::string name;
  for (int k = 0; k < kStepKindCount; ++k)
    if (round.steps[k]) (name += name.empty() ? "" : "+") += mpi_gdr::name(static_cast<StepKind>(k));
  return name;
}

std::string arguments_of(const TracedOperation& o) {
  Object a;
  a.number("operation", o.id).text("group", o.group);
  if (o.channel != Channel::PointToPoint) a.number("sequence", o.sequence).text("algorithm", o.algorithm);
  if (!o.dtype.empty()) a.text("dtype", o.dtype).number("count", o.count);
  a.number("bytes", o.bytes).text("detail", o.detail);
  a.raw("queued_us", microseconds(o.started - o.issued));
  if (!o.ended) a.raw("unfinished", "true");
  if (o.failed) a.raw("failed", "true");
  return a.end();
}

std::string arguments_of(const TracedRound& r) {
  Object steps, a;
  for (int k = 0; k < kStepKindCount; ++k)
    if (r.steps[k]) steps.number(mpi_gdr::name(static_cast<StepKind>(k)), r.steps[k]);
  std::string peers = "[";
  for (int i = 0; i < r.peer_count; ++i) (peers += i ? ", " : "") += std::to_string(r.peers[i]);
  peers += ']';
  a.number("operation", r.operation).number("lane", r.lane).number("round", r.round);
  a.raw("steps", steps.end()).raw("peers", peers);
  a.number("sent", r.sent).number("received", r.received).number("local", r.local);
  a.raw("work_us", microseconds(r.worked - r.began));
  return a.end();
}

// Operations that overlap in time get separate rows. Schedules of one operation that overlap get separate
// parts. Rounds of one lane never overlap.
std::vector<Event> lay_out(const Trace::Snapshot& shot, std::uint64_t& orphans) {
  std::vector<Event> events;
  Rows queue;
  std::array<Rows, kChannelCount> rows;
  std::unordered_map<std::uint64_t, std::size_t> operations;  // index of an operation's event
  std::vector<const TracedOperation*> by_issue;
  for (const TracedOperation& o : shot.operations) by_issue.push_back(&o);
  std::ranges::sort(by_issue, {}, &TracedOperation::issued);
  for (const TracedOperation* o : by_issue)
    events.push_back({{0, queue.row_of(o->issued, o->started), -1, -1},
                      o->issued,
                      o->started,
                      std::string(o->name),
                      "queue",
                      Object().number("operation", o->id).end()});
  for (const TracedOperation& o : shot.operations) {
    const std::int64_t end = o.ended ? o.ended : shot.now;
    const int channel = static_cast<int>(o.channel);
    operations[o.id] = events.size();
    events.push_back({{channel + 1, rows[channel].row_of(o.started, end), -1, -1},
                      o.started,
                      end,
                      std::string(o.name),
                      "operation",
                      arguments_of(o)});
  }

  struct Span {
    std::int64_t begin, end;
    std::vector<const TracedRound*> rounds;
  };
  // By TracedRound::operation and TracedRound::execution.
  std::map<std::pair<std::uint64_t, std::uint32_t>, Span> executions;
  for (const TracedRound& r : shot.rounds) {
    if (!operations.count(r.operation)) {
      ++orphans;
      continue;
    }
    auto [at, fresh] = executions.try_emplace({r.operation, r.execution}, Span{r.began, r.ended, {}});
    Span& span = at->second;
    span.begin = std::min(span.begin, r.began);
    span.end = std::max(span.end, r.ended);
    span.rounds.push_back(&r);
  }
  for (auto first = executions.begin(); first != executions.end();) {
    const std::uint64_t id = first->first.first;
    std::vector<const Span*> spans;
    for (; first != executions.end() && first->first.first == id; ++first) spans.push_back(&first->second);
    std::ranges::stable_sort(spans, {}, &Span::begin);
    const auto [kind, row, none, none2] = events[operations[id]].track;
    const std::int64_t end = events[operations[id]].end;
    Rows parts;
    for (const Span* span : spans) {
      const int part = parts.row_of(span->begin, span->end);
      for (const TracedRound* r : span->rounds)
        // A waiter may have timed the operation out during a round.
        events.push_back({{kind, row, part, r->lane},
                          std::min(r->began, end),
                          std::min(r->ended, end),
                          name_of(*r),
                          "round",
                          arguments_of(*r)});
    }
  }
  return events;
}

}  // namespace

std::string chrome_trace(const Trace::Snapshot& shot, const TraceOptions& options,
                         const std::string& reason) {
  std::uint64_t orphans = 0;  // rounds whose operation was dropped
  const std::vector<Event> events = lay_out(shot, orphans);
  std::map<Track, int> tracks;
  for (const Event& event : events) tracks.emplace(event.track, 0);
  int next = 0;
  for (auto& [track, number] : tracks) number = next++;

  const std::string rank = std::to_string(options.rank), host = host_name();
  std::string out = "{\"displayTimeUnit\": \"ns\",\n\"otherData\": ";
  out += Object()
             .text("producer", "mpi-gdr " + options.version)
             .text("reason", reason)
             .text("host", host)
             .number("process_id", static_cast<std::uint64_t>(getpid()))
             .number("rank", static_cast<std::uint64_t>(options.rank))
             .number("ranks", static_cast<std::uint64_t>(options.size))
             .text("clock", "CLOCK_MONOTONIC")
             .raw("unix_time_offset_us", microseconds(shot.unix_offset))
             .text("kept", "the newest")
             .number("capacity", options.capacity)
             .number("dropped_operations", shot.dropped_operations)
             .number("dropped_rounds", shot.dropped_rounds + orphans)
             .end();
  out += ",\n\"traceEvents\": [\n";
  const auto meta = [&](const char* name, int track, const std::string& arguments) {
    out += Object()
               .text("ph", "M")
               .raw("pid", rank)
               .number("tid", static_cast<std::uint64_t>(track))
               .text("name", name)
               .raw("args", arguments)
               .end();
  };
  meta("process_name", 0, Object().text("name", "rank " + rank + " on " + host).end());
  out += ",\n";
  meta("process_sort_index", 0, Object().raw("sort_index", rank).end());
  for (const auto& [track, number] : tracks) {
    out += ",\n";
    meta("thread_name", number, Object().text("name", title(track)).end());
    out += ",\n";
    meta("thread_sort_index", number, Object().raw("sort_index", std::to_string(number)).end());
  }
  for (const Event& event : events) {
    out += ",\n";
    out += Object()
               .text("ph", "X")
               .raw("pid", rank)
               .number("tid", static_cast<std::uint64_t>(tracks[event.track]))
               .raw("ts", microseconds(event.begin))
               .raw("dur", microseconds(event.end - event.begin))
               .text("name", event.name)
               .text("cat", event.category)
               .raw("args", event.arguments)
               .end();
  }
  return out + "\n]}\n";
}

std::string trace_path(const std::string& pattern, int rank, int size) {
  std::string path = pattern;
  if (size > 1 && path.find("%r") == std::string::npos) {
    const std::size_t slash = path.find_last_of('/');
    const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = path.find_last_of('.');
    // Not the dot of a hidden file or of a folder.
    path.insert(dot == std::string::npos || dot <= name ? path.size() : dot, ".rank%r");
  }
  return file_name(std::move(path), std::to_string(rank));
}

}  // namespace mpi_gdr
