// The flight log: entries, files, and concurrent reading and writing. tests/launch/test_flight_log.py reads
// the files with torch's analyzer and `mpi-gdr diagnose`.
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/pickle.hpp"
#include "diagnostics/file_writer.hpp"
#include "diagnostics/flight_signal.hpp"
#include "engine_world.hpp"

using namespace engine_tests;
using unit::contains, unit::content, unit::Folder;

namespace {

std::uint64_t record(FlightLog& log, const char* name, Channel channel = Channel::Collective) {
  return log.record(channel, 1, [&](FlightEntry& entry, std::uint32_t) { entry.name = name; });
}

WorldOptions logged(const Folder& folder, std::chrono::milliseconds timeout) {
  WorldOptions options;
  options.group.timeout = timeout;
  options.engine.observers = {std::make_shared<FlightWriter>(
      std::make_shared<FlightLog>(16), FlightWriterOptions{folder.path + "/new/folder", 0, 2, "test"})};
  return options;
}

}  // namespace

// torch's analyzer reads each file whose name contains the name of a log, so temporary files have other
// names.
TEST(what_a_killed_process_had_written_is_not_taken_for_a_log) {
  Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit one{1, 1};
    setrlimit(RLIMIT_FSIZE, &one);  // SIGXFSZ at the second byte
    replace_file(folder.path + "/log_0", "content", FolderUse::Named);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    ++files;
    CHECK(!contains(entry.path().filename().string(), "log_0"));
  }
  CHECK(files == 1);
}

TEST(pickles_are_those_of_protocol_2) {
  PickleWriter p;
  p.begin_dict();
  p.text("a");
  p.begin_list();
  p.integer(-2);
  p.integer(std::int64_t{1} << 40);
  p.boolean(true);
  p.none();
  p.text("x\xc3\xa9\xff\xe2\x82");  // an invalid and a truncated character
  p.integer(1);
  p.integer(2);
  p.pair();
  p.end_list();
  p.end_dict();
  using namespace std::string_literals;
  CHECK(p.finish() ==
        "\x80\x02}(X\x01\0\0\0a](J\xfe\xff\xff\xff\x8a\x08\0\0\0\0\0\x01\0\0"
        "\x88NX\x06\0\0\0x\xc3\xa9???J\x01\0\0\0J\x02\0\0\0\x86"
        "eu."s);
}

TEST(the_last_entries_are_kept) {
  FlightLog log(4);
  log.add_group({.name = "0", .members = {0, 1}});
  std::uint64_t ids[6];
  for (auto& id : ids) id = record(log, "all_reduce");
  for (const std::uint64_t id : {ids[0], ids[4]})  // the first has been overwritten: ignored
    log.change(id, [](FlightEntry& entry) { entry.started = entry.ended = 1; });
  const std::vector<int> pending = {1};
  log.change(ids[5], [&](FlightEntry& entry) { entry.fail(2, "first", &pending); });
  log.change(ids[5], [](FlightEntry& entry) { entry.fail(3, "second", nullptr); });
  log.change(ids[3], [](FlightEntry& entry) { entry.id = FlightEntry::kUnused; });
  const auto shot = log.snapshot();
  CHECK(shot.entries.size() == 3);
  CHECK(shot.entries[0].id == 2 && shot.entries[0].started == 0);
  CHECK(shot.entries[1].id == 4 && shot.entries[1].started && shot.entries[1].ended &&
        !shot.entries[1].failed);
  CHECK(shot.entries[2].failed && shot.entries[2].error == "first" && shot.entries[2].pending == pending);
}

TEST(shapes_that_do_not_fit_are_summed_up) {
  TensorShapes shapes;
  const std::int64_t sizes[] = {2, 3, 4};
  for (int i = 0; i < 9; ++i) shapes.add("float32", sizes, 3);
  CHECK(shapes.count() == 6 && shapes.elements() == 9 * 24);
  CHECK(shapes[0].dims == 3 && shapes.sizes(shapes[0])[2] == 4);
  TensorShapes scalars;
  for (int i = 0; i < 40; ++i) scalars.add("int64", sizes, 0);
  CHECK(scalars.count() == 6 && scalars[4].dims == 0 && scalars.sizes(scalars[5])[0] == 35);
  TensorShapes wide;
  const std::int64_t ones[20] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 1, 1, 1, 1};
  wide.add("int64", ones, 20);
  CHECK(wide[0].dims == 1 && wide.sizes(wide[0])[0] == 7);
}

TEST(group_names_are_unique) {
  FlightLog log(4);
  for (int i = 0; i < 3; ++i) log.add_group({.name = "0"});
  log.describe(1, "tensor parallel");
  const auto shot = log.snapshot();
  CHECK(shot.groups[0].name == "0" && shot.groups[1].name == "0#2" && shot.groups[2].name == "0#3");
  CHECK(shot.groups[1].description == "tensor parallel" && shot.groups[2].description.empty());
}

TEST(it_can_be_read_while_it_is_written) {
  FlightLog log(8);
  log.add_group({.name = "0"});
  std::vector<std::jthread> writers;
  for (int t = 0; t < 3; ++t)
    writers.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::uint64_t id = record(log, "all_reduce");
        log.change(id, [](FlightEntry& entry) { entry.started = 1; });
        log.change(id, [&](FlightEntry& entry) {
          if (id % 3 == 0)
            entry.fail(2, "some text that is too long for the string's own memory", nullptr);
          else
            entry.ended = 2;
        });
      }
    });
  for (int i = 0; i < 500; ++i) {
    const auto shot = log.snapshot();
    CHECK(shot.entries.size() <= 8);
    for (std::size_t e = 0; e < shot.entries.size(); ++e) {
      CHECK(shot.entries[e].name == "all_reduce");
      CHECK(e == 0 || shot.entries[e - 1].id < shot.entries[e].id);
    }
  }
}

TEST(operations_leave_their_states) {
  const Folder folder;
  const WorldOptions options = logged(folder, 30s);
  World world(2, options);
  world.run([&](int r) {
    std::vector<float> data(100, 1.0f);
    for (int i = 0; i < 3; ++i) world.wait(r, start(world, r, data, foreground()));
    char byte = 0;
    for (int i = 0; i < 2; ++i)
      world.wait(
          r, world.ranks[r].group->issue({MessageCall{r == 0, &byte, 1, 1 - r, 7}}, {{.name = "message"}}));
  });
  const auto shot =
      static_cast<FlightWriter&>(*options.engine.observers[0]).log()->snapshot();  // both ranks write to it
  CHECK(shot.entries.size() == 10);
  for (const FlightEntry& e : shot.entries) {
    CHECK(e.created && e.started >= e.created && e.ended >= e.started && !e.failed);
    if (e.channel == Channel::PointToPoint) {
      CHECK(e.sequence < 2 && e.tag == 7 && e.bytes == 1);
    } else {
      CHECK(e.bytes == 400 && e.sequences == 1 && e.sequence < 3 && !e.algorithm.empty());
    }
  }
  world.close();
}

TEST(a_timeout_writes_the_file_and_names_it) {
  const Folder folder;
  World world(2, logged(folder, 200ms));
  auto& data = *new std::vector<float>(10, 1.0f);  // leaked: the failed operation, also leaked, uses it
  auto op = start(world, 0, data);
  const std::string path = folder.path + "/new/folder/mpi_gdr_trace_rank_0";
  CHECK_THROWS(world.wait(0, op), Error, ("; flight log: " + path).c_str());
  const std::string file = content(path);
  CHECK(contains(file, "all_reduce seq=0") && contains(file, "pending_ranks"));
  struct stat status{};
  CHECK(stat(path.c_str(), &status) == 0 && (status.st_mode & 0777) == 0600);
}

TEST(a_file_that_cannot_be_written_fails_nothing) {
  const Folder folder;
  std::ofstream(folder.path + "/new") << "in the way";
  World world(2, logged(folder, 200ms));
  auto& data = *new std::vector<float>(10, 1.0f);
  auto op = start(world, 0, data);
  CHECK_THROWS(world.wait(0, op), Error, "still waiting for rank 1; the flight log could not");
}

TEST(abort_and_the_watch_write_the_file) {
  const Folder folder;
  const std::string path = folder.path + "/new/folder/mpi_gdr_trace_rank_0";
  {
    World world(2, logged(folder, 30s));
    world.ranks[0].engine->abort(*world.ranks[0].group, "enough");
    CHECK_CONTAINS(content(path), "group test: enough");
  }
  auto faults = std::make_shared<LoopbackFaults>();
  WorldOptions options = logged(folder, 100ms);
  options.loopback.faults = {faults, nullptr};
  options.engine.stuck_grace = 200ms;
  std::promise<std::string> report;
  std::atomic<int> reports{0};
  options.engine.on_stuck = [&](const std::string& text) {
    if (reports++ == 0) report.set_value(text);
  };
  World world(2, options);
  auto& data = *new std::vector<float>(10, 1.0f);
  faults->stick();
  auto op = start(world, 0, data);
  CHECK_CONTAINS(report.get_future().get(), "; flight log: " + path);
  CHECK_CONTAINS(content(path), "stuck inside the MPI library");
  faults->release();
}

TEST(a_peer_that_many_groups_lose_writes_the_file_once) {
  const Folder folder;
  WorldOptions options = logged(folder, 30s);
  World world(2, options);
  Engine& engine = *world.ranks[0].engine;
  std::vector<std::shared_ptr<Group>> groups;
  std::vector<GroupState*> lost;
  for (int i = 0; i < 3; ++i) {
    options.group.name = "group" + std::to_string(i);
    groups.push_back(std::make_shared<Group>(engine, options.group, std::move(make_loopback(2)[0]),
                                             std::make_shared<Planner>(options.env)));
    lost.push_back(groups.back().get());
  }
  engine.lose(lost, "rank 1 is gone");
  const std::string path = folder.path + "/new/folder/mpi_gdr_trace_rank_0";
  CHECK_CONTAINS(content(path), "group group0 and 2 more: rank 1 is gone");
  for (const auto& group : groups) {
    CHECK(group->failed() && group->failure_code() == ErrorCode::Remote);
    CHECK(group->failure() == "rank 1 is gone; flight log: " + path);
  }
  std::filesystem::remove(path);
  engine.lose(lost, "rank 1 is still gone");  // already reported
  CHECK(!std::filesystem::exists(path));
  CHECK(!world.ranks[0].group->failed());
}

TEST(a_signal_writes_the_files) {
  const Folder folder;
  const auto trace = std::make_shared<Trace>(TraceOptions{folder.path + "/trace.json", 3, 4, "test", 8});
  const auto writer = std::make_shared<FlightWriter>(std::make_shared<FlightLog>(4),
                                                     FlightWriterOptions{folder.path, 3, 4, "test"});
  const auto request = [&] {
    kill(getpid(), SIGUSR2);
    for (int i = 0; i < 2000 && !std::filesystem::exists(trace->options().path); ++i)
      std::this_thread::sleep_for(5ms);
  };
  {
    const FlightSignal on_request(SIGUSR2, writer, trace);
    CHECK(on_request.installed());
    CHECK(!FlightSignal(SIGUSR2, writer).installed());  // taken
    request();
    CHECK_CONTAINS(content(writer->path()), "signal");  // written before the trace
    CHECK_CONTAINS(content(trace->options().path), "\"reason\": \"signal\"");
  }
  std::filesystem::remove(trace->options().path);
  {
    const FlightSignal without_log(SIGUSR2, nullptr, trace);
    request();
    CHECK(std::filesystem::exists(trace->options().path));
  }
  struct sigaction now{};
  CHECK(sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == SIG_DFL);
  signal(SIGUSR2, SIG_IGN);
  CHECK(!FlightSignal(SIGUSR2, writer).installed());
  CHECK(sigaction(SIGUSR2, nullptr, &now) == 0 && now.sa_handler == SIG_IGN);
  signal(SIGUSR2, SIG_DFL);
}

UNIT_MAIN_THAT_LEAKS()
