// Messages within a node whose peer is the rank itself.
#include "node_ranks.hpp"

using namespace engine_tests;

TEST(messages_to_oneself_match_as_others_do) {
  NodeRanks ranks(2, true);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{8}, std::size_t{128} << 10, std::size_t{5000000}}) {
    std::vector<Bytes> sent, got(8, Bytes(bytes));
    std::vector<std::pair<int, Request>> requests;
    const auto receive = [&](unsigned i) {
      const int source = i % 2 ? kAnySource : 0;
      requests.emplace_back(0, ranks[0].irecv(kP2P, got[i].data(), bytes, source, static_cast<int>(i / 4)));
    };
    for (unsigned i = 0; i < 2; ++i) receive(i);  // before their sends; the others follow them
    for (unsigned i = 0; i < 8; ++i) {
      sent.push_back(pattern(bytes, i));
      requests.emplace_back(0, ranks[0].isend(kP2P, sent.back().data(), bytes, 0, static_cast<int>(i / 4)));
    }
    for (const unsigned i : {4u, 5u, 6u, 7u, 2u, 3u}) receive(i);
    ranks.finish(requests);
    CHECK(got == sent);
  }
  // A long message waits for its receive, which may be too short.
  Bytes large = pattern(1000000, 1);
  Request send = ranks[0].isend(kP2P, large.data(), large.size(), 0, 0);
  for (int turns = 0; turns < 1000; ++turns) CHECK(!ranks[0].test(send));
  Request receive = ranks[0].irecv(kP2P, large.data(), 10, 0, 0);
  CHECK_THROWS(ranks.finish({{0, send}, {0, receive}}), Error, "rank 0 sent 1000000 bytes with tag 0");
}

TEST(half_of_a_message_to_oneself_ends_at_the_deadline) {
  World world(2, {.group = {"test", 200ms, 32}, .node = true});
  static std::vector<char> large(1 << 20);  // not buffered
  for (int r = 0; r < 2; ++r) {
    const bool send = r == 0;
    auto op = world.ranks[r].group->issue({MessageCall{send, large.data(), large.size(), r, 0}},
                                          named("message", foreground()));
    CHECK_THROWS(world.wait(r, op), Error,
                 "still waiting for this rank itself, which has not called the matching isend or irecv");
  }
}

UNIT_MAIN_THAT_LEAKS()
