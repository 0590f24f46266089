// Liveness rules of PeerWatch.
#include "test.hpp"
#include "watched_ranks.hpp"

using namespace mpi_gdr;

TEST(a_healthy_job_has_no_news_and_asks_little) {
  WatchedRanks job({0, 0, 0, 0, 1, 1, 1, 1});
  job.seconds(1000);
  for (const auto& heard : job.heard) CHECK(heard.empty());
  // In each round a host sends a beat, reads one, and reads the list's length. Once it posts its lifeline and
  // reads another.
  CHECK(job.store.requests() <= 1000 * 2 * 3 + 2 * 3);
  CHECK(job.watches[0]->missing().empty());
}

TEST(a_job_on_one_host_does_not_need_the_store) {
  WatchedRanks job({0, 0, 0});
  job.seconds(3);
  job.watches[2]->say(goodbye(2));
  job.states[1] = ProcessState::Ended;
  job.seconds(3);
  CHECK(job.store.requests() == 0 && job.watches[0]->published());
  CHECK(job.of_kind(0, Kind::Left).size() == 1 && job.of_kind(0, Kind::Ended).size() == 1);
}

TEST(requests_of_large_jobs_stay_below_a_thousand_a_second) {
  for (const int size : {2, 300, 2048, 20000}) {
    PeerWatchOptions o;
    for (int r = 0; r < size; ++r) o.processes.push_back({"h", static_cast<std::uint64_t>(r + 1), r, 1});
    PeerWatch watch(o, [](const News&, bool) {});
    CHECK(3000.0 * size / watch.talk_pause().count() <= 1001.0 || watch.talk_pause() == 500ms);
  }
}

TEST(an_ended_process_is_told_at_once_and_once) {
  WatchedRanks job({0, 0, 1, 1, 2});
  job.seconds(3);
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  for (const int r : {0, 2, 3, 4}) {
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].kind == Kind::Ended);
    CHECK(job.heard[r][0].ranks == std::vector<int>{1});
    CHECK(job.heard[r][0].text ==
          "rank 1 (host h0, pid 101) is gone: its process has ended, seen by rank 0 on the same host");
  }
  job.seconds(100);
  CHECK(job.heard[4].size() == 1);
  CHECK(job.watches[4]->lost_among({0, 1}).find("rank 1") == 0 && job.watches[4]->lost_among({0, 2}).empty());
  CHECK(job.watches[4]->missing().find("rank 1") == 0);
}

TEST(a_silent_host_is_reported_once_and_given_up_later) {
  WatchedRanks job({0, 0, 1, 1, 1, 2});
  job.seconds(3);
  for (const int r : {2, 3, 4}) job.silent[r] = true;
  job.seconds(9);
  CHECK(job.heard[0].empty());
  job.seconds(100);
  for (const int r : {0, 1, 5}) {
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].kind == Kind::Quiet);
    CHECK(job.heard[r][0].ranks == (std::vector<int>{2, 3, 4}));
    CHECK(job.heard[r][0].text.find("ranks 2, 3, 4 (host h1) have been silent for 1") == 0);
    CHECK(job.watches[r]->quiet_among({3}) == job.heard[r][0].text);
    CHECK(job.watches[r]->lost_among({3}).empty());
  }
  CHECK(job.found[0].size() + job.found[1].size() + job.found[5].size() == 1);
  job.seconds(200);
  for (const int r : {0, 1, 5}) {
    CHECK(job.heard[r].size() == 2 && job.heard[r][1].kind == Kind::Silent);
    CHECK(job.watches[r]->quiet_among({3}).empty() && !job.watches[r]->lost_among({3}).empty());
  }
  // It comes back too late and reads that it was declared lost.
  for (const int r : {2, 3, 4}) job.silent[r] = false;
  job.seconds(2);
  for (const int r : {2, 3, 4})
    CHECK(job.heard[r].back().kind == Kind::Silent &&
          job.heard[r].back().ranks == (std::vector<int>{2, 3, 4}));
}

TEST(a_host_that_was_cut_off_comes_back) {
  WatchedRanks job({0, 0, 1, 1});
  job.seconds(3);
  for (int time = 1; time <= 2; ++time) {
    job.silent[2] = job.silent[3] = true;
    job.seconds(240);
    CHECK(!job.watches[0]->quiet_among({2}).empty());
    job.silent[2] = job.silent[3] = false;
    job.seconds(3);
    for (const int r : {0, 1}) {
      CHECK(job.heard[r].size() == static_cast<std::size_t>(2 * time));
      CHECK(job.heard[r].back().kind == Kind::Back);
      CHECK(job.heard[r].back().text == "ranks 2, 3 (host h1) respond again");
      CHECK(job.watches[r]->quiet_among({2}).empty() && job.watches[r]->missing().empty());
    }
  }
}

TEST(two_hosts_in_a_row_may_fall_silent) {
  WatchedRanks job({0, 1, 2, 3}, 20s);
  job.seconds(3);
  job.silent[1] = job.silent[2] = true;
  job.seconds(60);
  CHECK(job.watches[3]->lost_among({1}) != "" && job.watches[3]->lost_among({2}) != "");
  CHECK(job.watches[0]->lost_among({1}) != "" && job.watches[0]->lost_among({2}) != "");
  CHECK(job.watches[3]->lost_among({0, 3}).empty());
}

TEST(another_rank_speaks_when_the_speaker_ends) {
  WatchedRanks job({0, 0, 1, 1});
  job.seconds(3);
  CHECK(job.watches[2]->speaks() && !job.watches[3]->speaks());
  job.states[2] = ProcessState::Ended;  // rank 3 posts its news
  job.seconds(60);
  CHECK(job.watches[3]->speaks());
  for (const int r : {0, 1, 3})
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].ranks == std::vector<int>{2});
}

TEST(another_rank_speaks_while_the_speaker_is_stopped) {
  WatchedRanks job({0, 0, 1, 1});
  job.seconds(3);
  job.states[2] = ProcessState::Stopped;
  job.seconds(60);  // host 1 as a whole does not count as silent
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == Kind::Quiet);
  CHECK(job.heard[0][0].ranks == std::vector<int>{2});
  CHECK_CONTAINS(job.heard[0][0].text, "its process is stopped");
  job.states[2] = ProcessState::Runs;
  job.seconds(3);
  CHECK(!job.watches[3]->speaks());
  CHECK(job.heard[0].size() == 2 && job.heard[0][1].text == "rank 2 (host h1, pid 102) runs again");
}

TEST(what_the_last_speaker_had_not_published_is_published_by_the_next) {
  WatchedRanks job({0, 0, 1, 1});
  job.seconds(3);
  job.silent[2] = true;  // it is killed before its next talk
  job.watches[2]->say(goodbye(2));
  job.second();
  job.states[2] = ProcessState::Ended;
  job.seconds(3);
  CHECK(job.of_kind(0, Kind::Left).size() == 1 && job.of_kind(0, Kind::Ended).size() == 1);
  CHECK(job.store.add("job/news", 0) <= 2);
}

TEST(a_stopped_process_is_given_up_after_the_silence_only) {
  WatchedRanks job({0, 0, 1});
  job.seconds(3);
  job.states[1] = ProcessState::Stopped;
  job.seconds(9);
  CHECK(job.heard[0].empty() && job.heard[2].empty());
  job.seconds(280);
  for (const int r : {0, 2}) CHECK(job.heard[r].size() == 1 && job.heard[r][0].kind == Kind::Quiet);
  job.states[1] = ProcessState::Runs;  // in time
  job.seconds(20);
  for (const int r : {0, 2}) CHECK(job.heard[r].size() == 2 && job.heard[r][1].kind == Kind::Back);
  job.states[1] = ProcessState::Stopped;
  job.seconds(303);
  for (const int r : {0, 2}) {
    CHECK(job.heard[r].size() == 4 && job.heard[r][3].kind == Kind::Silent);
    CHECK_CONTAINS(job.heard[r][3].text, "its process is stopped");
  }
  job.states[1] = ProcessState::Runs;
  job.seconds(2);
  CHECK(job.heard[1].back().kind == Kind::Silent && job.heard[1].back().ranks == std::vector<int>{1});
}

TEST(without_a_heartbeat_only_ends_are_believed) {
  WatchedRanks job({0, 0, 1, 2}, 0ms);
  job.seconds(3);
  job.states[1] = ProcessState::Stopped;
  job.silent[2] = true;
  job.seconds(10000);
  for (const int r : {0, 3}) {
    CHECK(job.heard[r].size() == 2 && job.of_kind(r, Kind::Quiet).size() == 2);
    CHECK(job.watches[r]->missing().empty());
  }
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  CHECK(job.of_kind(0, Kind::Ended).size() == 1 && job.of_kind(3, Kind::Ended).size() == 1);
}

TEST(a_job_that_was_stopped_as_a_whole_goes_on) {
  WatchedRanks job({0, 0, 1, 1}, 20s);
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

TEST(a_debugger_is_no_loss) {
  WatchedRanks job({0, 0});
  job.states[1] = ProcessState::Traced;
  job.seconds(1000);
  CHECK(job.heard[0].empty());
}

TEST(who_has_not_begun_is_not_silent) {
  WatchedRanks job({0, 1, 2}, 20s);
  job.silent[1] = true;
  job.seconds(60);
  CHECK(job.heard[0].empty() && job.heard[2].empty());
  job.silent[1] = false;
  job.seconds(5);
  job.silent[1] = true;
  job.seconds(30);
  CHECK(job.of_kind(0, Kind::Silent).size() == 1);
}

TEST(ranks_elsewhere_are_given_up_together) {
  WatchedRanks job({0, 0, 1, 2});
  job.seconds(2);
  job.watches[0]->lose_others("the store is gone");
  job.look();
  for (const int r : {0, 1}) {
    CHECK(job.heard[r].size() == 1 && job.heard[r][0].ranks == (std::vector<int>{2, 3}));
    CHECK(job.watches[r]->lost_among({2}) == "the store is gone" &&
          job.watches[r]->lost_among({0, 1}).empty());
  }
}

TEST(news_that_was_never_written_does_not_hide_the_next) {
  WatchedRanks job({0, 1, 2});
  job.store.add("job/news", 1);  // its author died before writing it
  job.seconds(2);
  job.watches[1]->say(goodbye(1));
  job.seconds(20);
  CHECK(job.heard[0].size() == 1 && job.heard[2].size() == 1);
}

UNIT_MAIN()
