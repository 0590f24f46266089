// Process states from /proc, and the threads of Heartbeat.
#include <signal.h>

#include <condition_variable>

#include "bootstrap/heartbeat.hpp"
#include "bootstrap/process_id.hpp"
#include "memory_store.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

// A child that does nothing.
struct Child {
  Child() {
    int ready[2];
    CHECK(pipe(ready) == 0);
    id.pid = fork();
    if (id.pid == 0) {
      const ProcessId own = own_process();
      if (write(ready[1], &own.started, sizeof own.started) < 0) _exit(1);
      for (;;) pause();
    }
    CHECK(read(ready[0], &id.started, sizeof id.started) == sizeof id.started);
    close(ready[0]);
    close(ready[1]);
  }
  bool becomes(ProcessState state) const {
    for (int i = 0; i < 2000 && look_at(id) != state; ++i) usleep(1000);
    return look_at(id) == state;
  }
  void reap() const {
    kill(id.pid, SIGKILL);
    waitpid(id.pid, nullptr, 0);
  }
  ProcessId id = own_process();
};

}  // namespace

TEST(processes_are_looked_at) {
  const ProcessId own = own_process();
  CHECK(own.domain != 0 && own.pid == getpid() && look_at(own) == ProcessState::Runs);
  ProcessId other = own;
  other.started += 1;  // the pid was reused
  CHECK(look_at(other) == ProcessState::Ended);
  const Child child;
  CHECK(look_at(child.id) == ProcessState::Runs);
  kill(child.id.pid, SIGSTOP);
  CHECK(child.becomes(ProcessState::Stopped));
  kill(child.id.pid, SIGKILL);
  CHECK(child.becomes(ProcessState::Ended));  // a zombie
  child.reap();
  CHECK(look_at(child.id) == ProcessState::Ended);
}

// At a deadline the ranks that waited for a stopped one end as well: the error must also name the cause.
TEST(a_stopped_rank_is_named_beside_one_that_has_ended) {
  const Child one, two;
  const std::vector<ProcessId> processes = {own_process(), one.id, two.id};
  CHECK(find_lost(processes, 0, true) == "");
  kill(two.id.pid, SIGSTOP);
  CHECK(two.becomes(ProcessState::Stopped));
  const std::string stopped = describe(2, two.id) + " is stopped (by SIGSTOP or job control)";
  CHECK(find_lost(processes, 0, true) == stopped);
  CHECK(find_lost(processes, 0, false) == "");
  one.reap();
  const std::string ended = describe(1, one.id) + " is gone: its process has ended";
  CHECK(find_lost(processes, 0, true) == stopped + ", and " + ended);
  CHECK(find_lost(processes, 0, false) == ended);
  two.reap();
}

namespace {

const std::vector<ProcessId> kTwoHosts = {{"a", 1, 1, 1}, {"b", 2, 2, 1}};

struct Beating {
  Beating(MemoryStore& store, int rank, const std::vector<ProcessId>& processes, std::atomic<bool>* dead,
          std::chrono::milliseconds silence = 10s) {
    HeartbeatOptions o;
    o.watch.rank = rank;
    o.watch.processes = processes;
    o.watch.prefix = "job";
    o.watch.silence = silence;
    o.watch.probe = [dead](const ProcessId&) {
      return dead && *dead ? ProcessState::Ended : ProcessState::Runs;
    };
    o.connect = [&store, this] {
      ++connections;
      return store.clone();
    };
    o.on_news = [this](const News& news, bool) { put(news.text); };
    o.on_store_quiet = [this](const std::string& text) { put("quiet store: " + text); };
    o.on_store_lost = [this](const std::string& text) {
      put("store: " + text);
      return gives_up ? "gives up" : "";
    };
    o.on_tick = [this] { ++ticks; };
    heartbeat = std::make_unique<Heartbeat>(o);
  }
  void put(const std::string& text) {
    std::lock_guard lock(mutex);
    all += text + "\n";
    changed.notify_all();
  }
  bool hears(const std::string& text) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 50s, [&] { return all.find(text) != std::string::npos; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::string all;
  std::atomic<bool> gives_up{true};
  std::atomic<int> ticks{0}, connections{0};
  std::unique_ptr<Heartbeat> heartbeat;  // last: its threads use the members above
};

}  // namespace

TEST(heartbeats_tell_each_other) {
  MemoryStore store;
  std::atomic<bool> dead{false};
  const std::vector<ProcessId> processes = {{"a", 1, 1, 1}, {"b", 2, 2, 1}, {"b", 2, 3, 1}};
  Beating zero(store, 0, processes, nullptr), one(store, 1, processes, &dead);
  dead = true;  // rank 2, which has no heartbeat here
  CHECK(zero.hears("rank 2 (host b, pid 3) is gone") && one.hears("rank 2"));
  CHECK(zero.heartbeat->peers().lost_among({2}) != "" && zero.ticks > 0);
  CHECK(zero.connections == 1 && one.connections == 1);
  News news;
  news.text = "rank 1 has left";
  one.heartbeat->say(news, 5s);
  one.heartbeat->say(news, 5s);  // once
  CHECK(zero.hears("rank 1 has left") && zero.heartbeat->peers().missing() != "");
}

TEST(a_rank_that_does_not_speak_has_no_connection) {
  MemoryStore store;
  const std::vector<ProcessId> processes = {{"a", 1, 1, 1}, {"a", 1, 2, 1}, {"b", 2, 3, 1}};
  Beating one(store, 1, processes, nullptr);
  while (one.ticks < 5) std::this_thread::sleep_for(10ms);
  one.heartbeat->say({News::Kind::Left, {}, "left"}, 5s);  // a speaker will read it
  CHECK(one.connections == 0);
}

TEST(a_lost_store_is_told_and_a_hanging_one_is_left_behind) {
  MemoryStore broken, hanging;
  {
    Beating one(broken, 0, kTwoHosts, nullptr);
    while (broken.requests() < 4) std::this_thread::sleep_for(10ms);  // it has answered
    broken.break_down();
    CHECK(one.hears("gives up") && one.hears("store: connection reset"));
    CHECK(one.heartbeat->peers().lost_among({1}) == "gives up");
    one.heartbeat->say({News::Kind::Left, {}, "left"}, 5s);  // nobody can receive it
  }
  {
    Beating one(hanging, 0, kTwoHosts, nullptr, 12s);
    while (one.connections == 0) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(50ms);  // the first answers
    one.gives_up = false;
    hanging.hang();
    CHECK(one.hears("quiet store: no answer for 10 s") && one.hears("\nstore: no answer for 12 s"));
    CHECK(one.heartbeat->peers().lost_among({1}).empty());
    one.heartbeat->say({News::Kind::Left, {}, "left"}, 50ms);
    one.heartbeat->stop(50ms);
  }
  hanging.hang(false);  // the detached thread wakes up and makes no callback
  std::this_thread::sleep_for(100ms);
}

TEST(a_store_that_was_never_reached_loses_nobody) {
  MemoryStore broken;
  broken.break_down();
  Beating one(broken, 0, kTwoHosts, nullptr);
  CHECK(one.hears("quiet store: connection reset"));
  while (one.ticks < 12) std::this_thread::sleep_for(10ms);
  CHECK(one.heartbeat->peers().lost_among({1}).empty() && one.heartbeat->store_lost().empty());
}

TEST(a_talk_that_is_stuck_is_tried_over_another_connection) {
  MemoryStore hanging;
  Beating one(hanging, 0, kTwoHosts, nullptr, 300s);
  while (hanging.requests() == 0) std::this_thread::sleep_for(10ms);
  hanging.hang();
  for (int i = 0; i < 3000 && one.connections < 2; ++i) std::this_thread::sleep_for(10ms);
  CHECK(one.connections == 2);
  hanging.hang(false);  // both calls return, and the later thread continues
  const int before = hanging.requests();
  for (int i = 0; i < 1000 && hanging.requests() < before + 10; ++i) std::this_thread::sleep_for(10ms);
  CHECK(hanging.requests() >= before + 10);
}

UNIT_MAIN()
