// Comparison of the ranks' collectives: records, tags, and announcements of slow calls.
#include "job/slow_calls.hpp"
#include "shared_calls.hpp"

using namespace engine_tests;
using unit::contains;

namespace {

CollectiveCall moved(std::string_view dtype, std::uint64_t count, std::uint64_t item) {
  return {.spec = {.collective = Collective::Broadcast, .size = 2, .count = count * item},
          .dtype = dtype,
          .item_size = item};
}

// An all_reduce on each rank of a world with many tags; `change` edits the call of rank 1.
struct Slow {
  Slow() = default;
  explicit Slow(const std::function<void(CollectiveCall&)>& change) {
    issue(0);
    issue(1, change);
  }
  void issue(int r, const std::function<void(CollectiveCall&)>& change = [](CollectiveCall&) {}) {
    auto& b = *new Buffers;  // leaked as the engine's failed operations are
    CollectiveCall call = call_of(Collective::AllReduce, r, 2, 1000, 0, b, false);
    change(call);
    operations[r] = world.ranks[r].group->issue({call}, named("it", {}));
  }
  std::vector<SlowCalls::Group> groups(int r) { return {{world.ranks[r].group, "key"}}; }
  std::vector<News> announced(int r = 0) {
    std::vector<News> all;
    of_rank[r].note(*operations[r]);
    of_rank[r].look(groups(r), [&](News news) { all.push_back(std::move(news)); }, [](auto&, auto&) {});
    return all;
  }
  std::string found() {
    std::string text;
    of_rank[1].look(groups(1), [](News) {}, [&](GroupState&, const std::string& why) { text = why; });
    return text;
  }

  World world{2, {.loopback = {.max_tag = (1 << 28) - 1}}};
  OperationPtr operations[2];
  SlowCalls of_rank[2];
};

}  // namespace

TEST(a_record_holds_what_must_be_equal_on_all_ranks) {
  const std::uint64_t here = record_of(moved("float32", 10, 4), 5, 1).history;
  CHECK(here == record_of(moved("float32", 10, 4), 5, 1).history);
  CHECK(here != record_of(moved("int32", 10, 4), 5, 1).history);
  CHECK(here != record_of(moved("float32", 11, 4), 5, 1).history);
  CHECK(here != record_of(moved("float32", 10, 4), 6, 1).history);
  CHECK(here != record_of(moved("float32", 10, 4), 5, 2).history);  // history: other calls before
  CHECK(text_of(record_of(moved("float32", 10, 4), 5)) == "broadcast #5 of 10 x float32, root=0");
  // Empty calls may differ in dtype.
  CHECK(record_of(moved("float32", 0, 4)).history == record_of(moved("int64", 0, 8)).history);
  const CollectiveCall uneven{{.collective = Collective::AllGather, .size = 2, .counts = {1, 2}}};
  CHECK(text_of(record_of(uneven)) == "all_gather #0 of uneven blocks of uint8");
}

TEST(text_of_a_record_is_safe_whatever_another_process_writes) {
  CallRecord call;
  std::memset(static_cast<void*>(&call), 0xff, sizeof call);
  call.uneven = false;
  CHECK(!text_of(call).empty());
  call.collective = Collective::Broadcast;
  call.op = ReduceOp::Sum;
  CHECK(text_of(call).size() < 120);  // the dtype has no terminator
}

TEST(tags_distinguish_calls_as_far_as_there_are_tags) {
  for (const int max_tag : {32767, (1 << 20) - 1, (1 << 28) - 1, std::numeric_limits<int>::max() - 1}) {
    const CollectiveTags tags(max_tag);
    CHECK(tags.kinds >= 2 && tags.slots >= 256);
    CallRecord call;
    for (const std::uint64_t history : {std::uint64_t{0}, UINT64_MAX, UINT64_MAX / 3})
      for (const std::uint64_t sequence : {std::uint64_t{0}, tags.slots - 1, UINT64_MAX}) {
        call.history = history;
        call.sequence = sequence;
        CHECK(tags.base(call) >= 0 && tags.base(call) <= max_tag - kTagsPerCollective + 1);
        CHECK(tags.header(sequence) >= 0 && tags.header(sequence) <= max_tag);
      }
    CallRecord other = call;
    ++other.history;
    CHECK(tags.base(call) != tags.base(other));
  }
}

TEST(a_slow_call_is_announced_and_compared) {
  Slow differs([](CollectiveCall& call) { call.spec.op = ReduceOp::Max; });
  const auto news = differs.announced();
  CHECK(news.size() == 1 && news[0].kind == News::Kind::Slow);
  CHECK_CONTAINS(news[0].text, "waits in all_reduce #0 of 1000 x float32, op=sum");
  differs.of_rank[1].receive(news[0]);
  const std::string text = differs.found();
  CHECK_CONTAINS(text, "rank 0 called all_reduce #0 of 1000 x float32, op=sum, this rank called");
  CHECK_CONTAINS(text, "op=max");
  // Through the serialised form.
  const auto parsed = parse_news(serialise([&] {
                                   News copy = news[0];
                                   copy.ranks = {0};
                                   return copy;
                                 }()),
                                 2);
  CHECK(parsed && parsed->details == news[0].details);
  CHECK(differs.announced().empty());  // no second announcement
}

TEST(equal_calls_and_those_of_other_groups_are_no_difference) {
  Slow equal([](CollectiveCall&) {});
  const auto news = equal.announced();
  CHECK(news.size() == 1);
  equal.of_rank[1].receive(news[0]);
  CHECK(equal.found().empty());
  CHECK(equal.announced(1).empty());
  SlowCalls late_rank;
  late_rank.receive(news[0]);
  late_rank.look({}, [](News) {}, [](auto&, auto&) { CHECK(false); });
  CHECK(late_rank.idle());
}

TEST(a_call_that_this_rank_has_yet_to_issue_is_compared_later) {
  Slow slow;
  slow.issue(0);
  slow.of_rank[1].receive(slow.announced().at(0));
  CHECK(slow.found().empty() && !slow.of_rank[1].idle());
  slow.issue(1, [](CollectiveCall& call) { call.spec.count = 999; });
  CHECK_CONTAINS(slow.found(), "this rank called all_reduce #0 of 999 x float32");
  for (const int r : {0, 1}) {
    slow.world.ranks[r].engine->abort(*slow.world.ranks[r].group, "the test is over");
    CHECK_THROWS(slow.world.wait(r, slow.operations[r]), Error, "the test is over");
  }
}

// Announcements stop at a limit: all ranks of a job share a bounded space for news.
TEST(announcements_have_an_end) {
  Slow slow([](CollectiveCall&) {});
  News news = slow.announced().at(0);
  for (int i = 0; i < 600; ++i) slow.of_rank[1].receive(news);
  slow.of_rank[1].look({}, [](News) {}, [](auto&, auto&) {});
  CHECK(slow.announced(1).empty());
}

UNIT_MAIN_THAT_LEAKS()
