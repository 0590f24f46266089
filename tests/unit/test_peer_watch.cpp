// Who is still there: the rules of PeerWatch under a clock of the test's.
#include "bootstrap/peer_watch.hpp"
#include "memory_store.hpp"
#include "test.hpp"

using namespace mpigdr;
using namespace std::chrono_literals;

namespace {

// Ranks on hosts, whose processes are in the state that the test says; one clock.
struct Job {
  explicit Job(std::vector<int> hosts, std::chrono::milliseconds silence = 10s) {
    for (int r = 0; r < static_cast<int>(hosts.size()); ++r)
      processes.push_back(
          {"h" + std::to_string(hosts[r]), static_cast<std::uint64_t>(hosts[r] + 1), 100 + r, 1});
    states.assign(hosts.size(), ProcessState::Runs);
    heard.resize(hosts.size());
    silent.assign(hosts.size(), false);
    for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
      PeerWatchOptions o;
      o.rank = r;
      o.processes = processes;
      o.prefix = "job";
      o.abort_key = "abort";
      o.silence = silence;
      o.probe = [this](const ProcessId& p) { return states[p.pid - 100]; };
      watches.push_back(
          std::make_unique<PeerWatch>(o, [this, r](const News& news) { heard[r].push_back(news); }));
    }
  }
  // A second in which everybody looks and talks, but for those whose processes do not run or whose host is
  // cut off.
  void second() {
    now += 1s;
    for (std::size_t r = 0; r < watches.size(); ++r) {
      if (states[r] != ProcessState::Runs) continue;
      watches[r]->look_around(now);
      if (!silent[r]) watches[r]->talk(store, now);
    }
  }
  void seconds(int n) {
    while (n-- > 0) second();
  }

  MemoryStore store;
  PeerWatch::Time now{1000s};
  std::vector<ProcessId> processes;
  std::vector<ProcessState> states;
  std::vector<bool> silent;
  std::vector<std::vector<News>> heard;
  std::vector<std::unique_ptr<PeerWatch>> watches;
};

}  // namespace

TEST(a_healthy_job_has_no_news_and_asks_little) {
  Job job({0, 0, 0, 0, 1, 1, 1, 1});
  job.seconds(1000);
  for (const auto& heard : job.heard) CHECK(heard.empty());
  // Per rank and second: the list, the abort key; every eighth time the item after; per host: one beat sent,
  // one read. Once per rank: a first beat.
  CHECK(job.store.requests() <= 1000 * (8 * 2 + 8 / 8 + 2 * 2) + 8);
  CHECK(job.watches[0]->missing().empty());
}

TEST(requests_of_large_jobs_stay_below_a_thousand_a_second) {
  for (const int size : {2, 300, 2048, 20000}) {
    PeerWatchOptions o;
    for (int r = 0; r < size; ++r) o.processes.push_back({"h", static_cast<std::uint64_t>(r / 64 + 1), r, 1});
    PeerWatch watch(o, [](const News&) {});
    CHECK(3000.0 * size / watch.talk_pause().count() <= 1000.0 * 1.001 || watch.talk_pause() == 1s);
    CHECK(3000.0 * size / watch.talk_pause().count() <= 1001.0);
  }
}

TEST(an_ended_process_is_told_at_once_and_once) {
  Job job({0, 0, 1, 1, 2});
  job.seconds(3);
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  for (const int r : {0, 2, 3, 4}) {
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].kind == News::Kind::Ended);
    CHECK(job.heard[r][0].ranks == std::vector<int>{1});
    CHECK(job.heard[r][0].text ==
          "rank 1 (host h0, pid 101) is gone: its process has ended, seen by rank 0 on the same host");
  }
  job.seconds(100);
  CHECK(job.heard[4].size() == 1);
  CHECK(job.watches[4]->lost_among({0, 1}).find("rank 1") == 0 && job.watches[4]->lost_among({0, 2}).empty());
  CHECK(job.watches[4]->missing().find("rank 1") == 0);
}

TEST(a_host_that_falls_silent_is_told_as_a_whole) {
  Job job({0, 0, 1, 1, 1, 2});
  job.seconds(3);
  for (const int r : {2, 3, 4}) job.silent[r] = true;
  job.seconds(9);
  CHECK(job.heard[0].empty());
  job.seconds(4);
  for (const int r : {0, 1, 5}) {
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].kind == News::Kind::Silent);
    CHECK(job.heard[r][0].ranks == (std::vector<int>{2, 3, 4}));
    CHECK(job.heard[r][0].text.find("ranks 2, 3, 4 (host h1) have not been heard of for 1") == 0);
  }
  // It comes back, and learns that it was given up.
  for (const int r : {2, 3, 4}) job.silent[r] = false;
  job.seconds(2);
  CHECK(job.heard[2].size() == 1 && job.heard[2][0].ranks == (std::vector<int>{2, 3, 4}));
}

TEST(two_hosts_in_a_row_may_fall_silent) {
  Job job({0, 1, 2, 3});
  job.seconds(3);
  job.silent[1] = job.silent[2] = true;
  job.seconds(40);
  CHECK(job.heard[0].size() == 2 && job.heard[3].size() == 2);
  CHECK(job.watches[3]->lost_among({1}) != "" && job.watches[3]->lost_among({2}) != "");
  CHECK(job.watches[3]->lost_among({0, 3}).empty());
}

TEST(who_sends_the_beat_of_a_host_may_end) {
  Job job({0, 0, 1, 1});
  job.seconds(3);
  job.states[2] = ProcessState::Ended;  // rank 1 watched it
  job.seconds(60);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].ranks == std::vector<int>{2});
  CHECK(job.heard[3].size() == 1);
}

TEST(a_stopped_process_is_told_after_the_silence_only) {
  Job job({0, 0, 1});
  job.seconds(3);
  job.states[1] = ProcessState::Stopped;
  job.seconds(9);
  CHECK(job.heard[0].empty() && job.heard[2].empty());
  job.states[1] = ProcessState::Runs;  // in time
  job.seconds(20);
  CHECK(job.heard[0].empty());
  job.states[1] = ProcessState::Stopped;
  job.seconds(13);
  CHECK(job.heard[2].size() == 1 && job.heard[2][0].kind == News::Kind::Silent);
  CHECK(job.heard[2][0].text.find("its process is stopped") != std::string::npos);
  job.states[1] = ProcessState::Runs;
  job.seconds(2);
  CHECK(job.heard[1].size() == 1 && job.heard[1][0].ranks == std::vector<int>{1});
}

TEST(without_a_heartbeat_only_ends_are_told) {
  Job job({0, 0, 1, 2}, 0ms);
  job.seconds(3);
  job.states[1] = ProcessState::Stopped;
  job.silent[2] = true;
  job.seconds(10000);
  CHECK(job.heard[0].empty() && job.heard[3].empty());
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  CHECK(job.heard[0].size() == 1 && job.heard[3].size() == 1);
}

TEST(a_job_that_was_stopped_as_a_whole_goes_on) {
  Job job({0, 0, 1, 1});
  job.seconds(3);
  for (auto& state : job.states) state = ProcessState::Stopped;
  job.seconds(100);
  for (auto& state : job.states) state = ProcessState::Runs;
  // The first to run again finds the others still stopped, and no new beats.
  job.states[1] = job.states[2] = job.states[3] = ProcessState::Stopped;
  job.seconds(3);
  for (auto& state : job.states) state = ProcessState::Runs;
  job.seconds(30);
  for (const auto& heard : job.heard) CHECK(heard.empty());
}

TEST(who_leaves_is_told_and_may_end_later) {
  Job job({0, 1});
  job.seconds(2);
  News news;
  news.text = "rank 1 has left";
  news.meets_again = true;
  news.details = std::string("\0x", 2);
  job.watches[1]->leave(news);
  job.seconds(2);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == News::Kind::Left);
  CHECK(job.heard[0][0].details == std::string("\0x", 2) && job.heard[0][0].ranks == std::vector<int>{1});
  CHECK(job.watches[0]->missing().empty() && job.watches[0]->lost_among({1}).empty());

  Job other({0, 0});
  news.meets_again = false;
  other.watches[1]->leave(news);
  other.seconds(2);
  CHECK(other.watches[0]->missing() == "rank 1 has left");
  other.states[1] = ProcessState::Ended;
  other.seconds(1);
  CHECK(other.heard[0].size() == 2 && other.heard[0][1].kind == News::Kind::Ended);
  CHECK(other.heard[0][1].text == "rank 1 has left; its process has ended");
}

TEST(the_end_of_one_who_said_goodbye_and_waited_concerns_the_last_meeting_only) {
  Job job({0, 0});
  News news;
  news.text = "rank 1 has left";
  news.meets_again = true;
  job.watches[1]->leave(news);
  job.seconds(2);
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == News::Kind::Left);
  CHECK(job.watches[0]->missing().find("is gone") != std::string::npos);
}

TEST(a_goodbye_is_heard_before_the_end_of_the_process) {
  Job job({0, 0, 0});
  job.seconds(2);
  News news;
  news.text = "rank 1 has left";
  job.watches[1]->leave(news);
  job.watches[1]->talk(job.store, job.now);
  job.states[1] = ProcessState::Ended;
  job.watches[0]->look_around(job.now);  // before the next round with the store
  CHECK(job.heard[0].empty() && job.watches[0]->unsure());
  job.seconds(2);
  CHECK(!job.watches[0]->unsure());
  for (const int r : {0, 2}) {
    CHECK(job.heard[r].size() == 2 && job.heard[r][0].kind == News::Kind::Left);
    CHECK(job.heard[r][1].kind == News::Kind::Ended);
  }
}

TEST(an_ended_process_is_told_where_the_store_does_not_answer) {
  Job job({0, 0});
  job.seconds(2);
  job.silent[0] = true;
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  CHECK(job.heard[0].empty());
  job.second();
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == News::Kind::Ended);
}

TEST(who_gives_up_the_last_meeting_is_missing) {
  Job job({0, 1});
  job.seconds(2);
  News news;
  news.text = "rank 1 has left";
  news.meets_again = true;
  job.watches[1]->leave(news);
  job.seconds(2);
  CHECK(job.watches[0]->missing().empty());
  news.kind = News::Kind::Ended;
  news.text = "rank 1 has given up";
  job.watches[1]->leave(news);
  job.seconds(2);
  CHECK(job.watches[0]->missing() == "rank 1 has given up");
  CHECK(job.heard[0].size() == 1);  // only the last meeting has to know
}

TEST(a_debugger_is_no_loss) {
  Job job({0, 0});
  job.states[1] = ProcessState::Traced;
  job.seconds(100);
  CHECK(job.heard[0].empty());
}

TEST(who_has_not_begun_is_not_silent) {
  Job job({0, 1, 2});
  job.silent[1] = true;
  job.seconds(60);
  CHECK(job.heard[0].empty() && job.heard[2].empty());
  job.silent[1] = false;
  job.seconds(5);
  job.silent[1] = true;
  job.seconds(20);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == News::Kind::Silent);
}

TEST(news_that_was_never_written_does_not_hide_the_next) {
  Job job({0, 1, 2});
  job.store.add("job/news", 1);  // its author died
  job.seconds(2);
  News news;
  news.text = "rank 1 has left";
  job.watches[1]->leave(news);
  job.seconds(20);
  CHECK(job.heard[0].size() == 1 && job.heard[2].size() == 1);
}

TEST(the_list_is_bounded_and_malformed_news_is_passed_over) {
  std::vector<int> hosts;
  for (int r = 0; r < 200; ++r) hosts.push_back(r);
  Job job(hosts);
  News news;
  news.text = "left";
  for (int r = 1; r < 200; ++r) job.watches[r]->leave(news);
  job.seconds(1);
  job.second();
  CHECK(job.heard[0].size() == PeerWatch::kMaxNews / 2);  // the other half is for losses
  Job other({0, 1});
  other.store.add("job/news", 2);
  other.store.set("job/news/1", "4:what");
  other.store.set("job/news/2", "what");
  other.watches[1]->leave(news);
  other.seconds(2);
  CHECK(other.heard[0].size() == 1 && other.heard[0][0].text == "left");
}

TEST(the_abort_key_is_seen) {
  Job job({0, 1});
  job.seconds(2);
  CHECK(!job.watches[0]->abort_reason());
  job.store.set("abort", "rank 1 called MPI_Abort");
  job.second();
  CHECK(job.watches[0]->abort_reason() == "rank 1 called MPI_Abort");
}

UNIT_MAIN()
