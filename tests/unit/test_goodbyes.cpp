// Callbacks of PeerWatch when a rank leaves, fails or writes invalid data.
#include "bootstrap/rendezvous.hpp"
#include "test.hpp"
#include "watched_ranks.hpp"

using namespace mpi_gdr;

TEST(who_leaves_is_told_and_may_end_later) {
  WatchedRanks job({0, 1});
  job.seconds(2);
  News news = goodbye(1, true);
  news.details = std::string("\0x", 2);
  job.watches[1]->say(news);
  CHECK(!job.watches[1]->published());
  job.seconds(2);
  CHECK(job.watches[1]->published());
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == Kind::Left);
  CHECK(job.heard[0][0].details == std::string("\0x", 2) && job.heard[0][0].ranks == std::vector<int>{1});
  CHECK(job.watches[0]->missing().empty() && job.watches[0]->lost_among({1}).empty());

  WatchedRanks other({0, 0});
  other.watches[1]->say(goodbye(1));
  other.watches[1]->say(goodbye(1));  // no news
  other.seconds(2);
  CHECK(other.watches[0]->missing() == "rank 1 has left");
  other.states[1] = ProcessState::Ended;
  other.seconds(1);
  CHECK(other.heard[0].size() == 2 && other.heard[0][1].kind == Kind::Ended);
  CHECK(other.heard[0][1].text == "rank 1 has left; its process has ended");
}

TEST(the_end_of_one_who_said_goodbye_and_waited_concerns_the_last_meeting_only) {
  WatchedRanks job({0, 0});
  job.watches[1]->say(goodbye(1, true));
  job.seconds(2);
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].kind == Kind::Left);
  CHECK_CONTAINS(job.watches[0]->missing(), "is gone");
}

TEST(a_goodbye_is_heard_before_the_end_of_the_process) {
  WatchedRanks job({0, 0, 0, 1});
  job.seconds(2);
  job.watches[1]->say(goodbye(1));
  job.states[1] = ProcessState::Ended;
  job.seconds(2);
  for (const int r : {0, 2, 3}) {
    CHECK(job.heard[r].size() == 2 && job.heard[r][0].kind == Kind::Left);
    CHECK(job.heard[r][1].kind == Kind::Ended);
  }
}

TEST(a_failed_group_is_told_and_its_rank_lives_on) {
  WatchedRanks job({0, 0, 1});
  job.seconds(2);
  News news{Kind::Failed, {}, "rank 1 has left group 0"};
  news.details = "group 0";
  job.watches[1]->say(news);
  news.details = "group 1";
  job.watches[1]->say(news);
  job.watches[1]->say(news);
  job.seconds(3);
  for (const int r : {0, 2}) CHECK(job.heard[r].size() == 2 && job.heard[r][1].details == "group 1");
  CHECK(job.watches[0]->missing().empty() && job.watches[0]->lost_among({1}, true).empty());
}

TEST(who_gives_up_the_last_meeting_is_missing) {
  WatchedRanks job({0, 1});
  job.seconds(2);
  News news = goodbye(1, true);
  job.watches[1]->say(news);
  job.seconds(2);
  CHECK(job.watches[0]->missing().empty());
  news.kind = Kind::Ended;
  news.text = "rank 1 has given up";
  job.watches[1]->say(news);
  job.seconds(2);
  CHECK(job.watches[0]->missing() == "rank 1 has given up");
  CHECK(job.heard[0].size() == 1);  // Ended is stored, not reported
}

TEST(all_goodbyes_of_a_large_job_are_heard) {
  std::vector<int> hosts;
  for (int r = 0; r < 200; ++r) hosts.push_back(r / 4);
  WatchedRanks job(hosts);
  for (int r = 1; r < 200; ++r) job.watches[r]->say(goodbye(r));
  job.seconds(3);
  CHECK(job.of_kind(0, Kind::Left).size() == 199);
  CHECK(job.store.add("job/news", 0) == 50);
}

TEST(what_is_no_news_is_passed_over) {
  WatchedRanks job({0, 1});
  job.store.add("job/news", 4);
  job.store.set("job/news/1", "4:what");
  job.store.set("job/news/2", "what");
  job.store.set("job/news/3", pack({pack({"0", "text", "0", "", "7"}), pack({"9", "text", "0", "", "1"})}));
  job.store.set("job/news/4", pack({pack({"0", "text", "0", "", "1x"}), pack({"0", "text", "0", ""})}));
  job.watches[1]->say(goodbye(1));
  job.seconds(2);
  CHECK(job.heard[0].size() == 1 && job.heard[0][0].text == "rank 1 has left");
}

UNIT_MAIN()
