// The engine's trace: records of operations and of rounds, drops, and the layout of the file.
// tests/launch/test_tracing.py reads the files of real jobs.
#include "diagnostics/trace.hpp"
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

Clock::time_point at(std::int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }

std::uint64_t begin(Trace& trace, std::int64_t issued, std::int64_t started,
                    const char* name = "all_reduce") {
  return trace.started(
      {.issued = issued, .started = started, .name = name, .algorithm = "ring", .group = "0"});
}

TracedRound round_of(std::int64_t began, std::int64_t ended, std::uint32_t execution, std::uint8_t lane = 0) {
  TracedRound round{
      .began = began, .worked = began + 1, .ended = ended, .execution = execution, .lane = lane};
  round.steps[static_cast<int>(StepKind::Send)] = 1;
  round.steps[static_cast<int>(StepKind::Reduce)] = 2;
  return round;
}

TraceOptions options(std::size_t capacity) { return {"/dev/null/none", 1, 2, "test", capacity}; }

int count(const std::string& text, std::string_view part) {
  int n = 0;
  for (std::size_t i = text.find(part); i != text.npos; i = text.find(part, i + 1)) ++n;
  return n;
}

// The line of the first event that contains both.
std::string line_with(const std::string& text, std::string_view a, std::string_view b) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(a) != line.npos && line.find(b) != line.npos) return line;
  return "";
}

std::string track_of(const std::string& line) {
  const std::size_t from = line.find("\"tid\": ");
  return from == line.npos ? "" : line.substr(from, line.find(',', from) - from);
}

}  // namespace

TEST(the_newest_records_are_kept) {
  Trace trace(options(4));
  std::uint64_t ids[6];
  for (auto& id : ids) {
    id = begin(trace, 10, 20);
    trace.entered(id);
    trace.round(round_of(20, 30, trace.next_execution()));
  }
  trace.ended(ids[0], at(50), false);  // overwritten
  trace.ended(0, at(50), false);       // never traced
  trace.ended(ids[5], at(60), true);
  trace.ended(ids[5], at(70), false);  // the first counts
  const Trace::Snapshot shot = trace.snapshot();
  CHECK(shot.operations.size() == 4 && shot.dropped_operations == 2);
  CHECK(shot.rounds.size() == 4 && shot.dropped_rounds == 2);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(shot.operations[i].id == ids[i + 2] && shot.rounds[i].operation == ids[i + 2]);
    CHECK(shot.operations[i].ended == (i == 3 ? 60 : 0) && shot.operations[i].failed == (i == 3));
  }
}

TEST(what_overlaps_gets_tracks_of_its_own) {
  Trace trace(options(16));
  const auto a = begin(trace, 1000, 2000, "a"), b = begin(trace, 1500, 2500, "b");
  trace.entered(a);
  trace.round(round_of(2000, 3000, 1, 0));
  trace.round(round_of(2000, 3000, 1, 1));
  trace.round(round_of(2100, 2200, 2, 0));  // a second schedule of the operation, concurrent
  trace.entered(b);
  trace.round(round_of(2500, 2600, 3, 0));
  trace.ended(a, at(3000), false);
  const auto c = begin(trace, 2900, 3000, "c");  // begins where a ends: in its row
  trace.ended(b, at(3500), true);
  trace.ended(c, at(4000), false);
  const std::string text = chrome_trace(trace.snapshot(), trace.options(), "because \"\\\x01");
  CHECK(text.find(R"("reason": "because \"\\\u0001")") != text.npos);
  const auto operation = [&](const char* name) {
    return line_with(text, std::string("\"name\": \"") + name + '"', "\"cat\": \"operation\"");
  };
  CHECK(track_of(operation("a")) == track_of(operation("c")));
  CHECK(track_of(operation("a")) != track_of(operation("b")));
  CHECK_CONTAINS(operation("a"), "\"ts\": 2.000, \"dur\": 1.000");
  CHECK_CONTAINS(operation("b"), "\"failed\": true");
  CHECK(operation("a").find("failed") == text.npos);
  std::map<std::string, int> tracks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"cat\": \"round\"") != line.npos) ++tracks[track_of(line)];
  CHECK(tracks.size() == 4);
  CHECK(count(text, "\"name\": \"send+reduce\"") == 4);
  CHECK(count(text, "\"name\": \"collectives part 2 lane 0\"") == 1);
  CHECK(count(text, "\"name\": \"collectives 2 lane 0\"") == 1);
  CHECK(count(text, "\"name\": \"queue\"") == 1 && count(text, "\"name\": \"queue 2\"") == 1);
}

TEST(unfinished_operations_last_until_now_and_orphans_are_dropped) {
  Trace trace(options(2));
  const auto first = begin(trace, 1000, 2000, "first");
  trace.entered(first);
  begin(trace, 1000, 2000, "second");
  begin(trace, 1000, 2000, "third");  // overwrites the first
  trace.round(round_of(2000, 3000, 1));
  const std::string text = chrome_trace(trace.snapshot(), trace.options(), "test");
  CHECK(count(text, "\"cat\": \"round\"") == 0);
  CHECK(count(text, "\"dropped_rounds\": 1") == 1 && count(text, "\"dropped_operations\": 1") == 1);
  CHECK(count(text, "\"unfinished\": true") == 2);
}

TEST(a_file_per_rank) {
  CHECK(trace_path("/a.b/trace.json", 3, 4) == "/a.b/trace.rank3.json");
  CHECK(trace_path("/a.b/trace", 3, 4) == "/a.b/trace.rank3");
  CHECK(trace_path("/a.b/.trace", 3, 4) == "/a.b/.trace.rank3");
  CHECK(trace_path("trace.json", 0, 1) == "trace.json");
  CHECK(trace_path("%r/trace-%r.json", 12, 16) == "12/trace-12.json");
  CHECK(trace_path("%r/100%", 1, 16) == "1/100%");
  const std::string path = trace_path("t-%p-%h.json", 1, 2);
  CHECK(path.find("t-" + std::to_string(getpid()) + '-') == 0 && path.find('%') == path.npos);
}

TEST(a_file_that_cannot_be_written_is_reported) {
  const auto trace = std::make_shared<Trace>(options(4));
  const FileWriter::Result result = trace->write("test", 10s);
  CHECK(result.path == "/dev/null/none" && !result.problem.empty());
}

TEST(it_can_be_read_while_it_is_written) {
  Trace trace(options(64));
  std::atomic<std::uint64_t> last{0};
  const std::jthread ender([&](const std::stop_token& stop) {  // a waiter that times out
    while (!stop.stop_requested()) trace.ended(last.load(), Clock::now(), true);
  });
  const std::jthread role([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::uint64_t id = begin(trace, 1, 2);
      trace.entered(id);
      last = id;
      for (int i = 0; i < 3; ++i) trace.round(round_of(2, 3, trace.next_execution()));
    }
  });
  for (int i = 0; i < 200; ++i) {
    const Trace::Snapshot shot = trace.snapshot();
    for (std::size_t k = 1; k < shot.operations.size(); ++k)
      CHECK(shot.operations[k].id == shot.operations[k - 1].id + 1);
  }
}

namespace {

std::vector<std::shared_ptr<Trace>> add_traces(WorldOptions& world, const std::string& prefix) {
  std::vector<std::shared_ptr<Trace>> traces;
  for (int r = 0; r < 2; ++r)
    traces.push_back(std::make_shared<Trace>(TraceOptions{prefix + std::to_string(r), r, 2, "test", 4096}));
  world.observers = {traces.begin(), traces.end()};
  return traces;
}

// Checks the traces of a job of two ranks with concurrent operations.
void check_job(bool node, const char* algorithm) {
  constexpr int kOperations = 6;
  constexpr std::size_t kCount = 4096;
  WorldOptions w{.env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", algorithm}, {"MPI_GDR_CHUNK_BYTES", "4096"}}),
                 .node = node};
  const auto traces = add_traces(w, "");
  World world(2, w);
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data(kOperations, std::vector<float>(kCount, 1.0f));
    std::vector<OperationPtr> operations;
    for (auto& d : data) {
      IssueOptions issue;
      issue.detail.text = "detail";
      issue.dtype = "float32";
      issue.item_size = 4;
      operations.push_back(start(world, r, d, issue));
    }
    for (auto& operation : operations) world.wait(r, operation);
  });
  for (int r = 0; r < 2; ++r) {
    const Trace::Snapshot shot = traces[r]->snapshot();
    CHECK(shot.operations.size() == kOperations && shot.dropped_operations == 0);
    const SchedulePtr schedule =
        find_algorithm(Collective::AllReduce, algorithm)
            ->build({Collective::AllReduce, r, 2, 0, kCount, DataType::Float32},
                    {.chunk_bytes = 4096, .max_lanes = w.env.lanes, .staging_bytes = shm::kStagingBytes});
    CHECK(!schedule->rounds.empty());
    CHECK(shot.rounds.size() == kOperations * schedule->rounds.size());
    std::map<std::tuple<std::uint64_t, std::uint32_t, int>, const TracedRound*> before;
    for (const TracedOperation& o : shot.operations) {
      CHECK(o.name == "all_reduce" && o.algorithm == algorithm && o.dtype == "float32");
      CHECK(o.count == kCount && o.bytes == 4 * kCount && o.group == "test" && !o.failed);
      CHECK(o.sequence == o.id - 1);  // in issue order
      CHECK(o.issued <= o.started && o.started <= o.ended);
    }
    std::uint64_t sent = 0, received = 0, local = 0, planned = 0;
    for (const TracedRound& round : shot.rounds) {
      CHECK(round.operation >= 1 && round.operation <= kOperations);
      const TracedOperation& o = shot.operations[round.operation - 1];
      CHECK(o.started <= round.began && round.began <= round.worked && round.worked <= round.ended);
      CHECK(round.ended <= o.ended);
      const TracedRound*& last = before[{round.operation, round.execution, round.lane}];
      CHECK(round.round == (last ? last->round + 1 : 0) && (!last || last->ended <= round.began));
      last = &round;
      for (int i = 0; i < round.peer_count; ++i) CHECK(round.peers[i] == 1 - r);
      sent += round.sent;
      received += round.received;
      local += round.local;
    }
    for (const Step& step : schedule->steps)
      if (step.kind == StepKind::Send) planned += kOperations * 4 * schedule->source(step).count;
    CHECK(sent == planned && received == planned && local > 0);
    CHECK((sent > 0) == !node);
  }
}

}  // namespace

TEST(rounds_of_messages_lie_in_their_operation) { check_job(false, "ring"); }
TEST(rounds_in_shared_memory_lie_in_their_operation) { check_job(true, "staged"); }

TEST(a_failure_writes_the_trace) {
  const unit::Folder folder;
  WorldOptions w;
  w.group.timeout = 200ms;
  const auto traces = add_traces(w, folder.path + "/");
  World world(2, w);
  std::vector<float> data(4, 1.0f);
  const OperationPtr operation = start(world, 0, data);  // the other rank never starts
  CHECK_THROWS(world.wait(0, operation), Error, "timed out");
  const std::string text = unit::content(folder.path + "/0");
  CHECK(text.find("timed out") != text.npos && text.find("\"unfinished\": true") != text.npos);
  const Trace::Snapshot shot = traces[0]->snapshot();
  CHECK(shot.operations.size() == 1 && shot.operations[0].failed && shot.operations[0].ended);
  world.close();
}

UNIT_MAIN_THAT_LEAKS()
