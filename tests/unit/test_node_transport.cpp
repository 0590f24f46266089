// Messages between ranks of a node through shared memory: matching, long messages, faults.
#include "node_ranks.hpp"

using namespace engine_tests;

TEST(without_memory_for_messages_the_library_carries_them) {
  std::vector<std::unique_ptr<shm::Segment>> segments;
  std::vector<std::string> tickets;
  for (const std::size_t bytes : {shm::message_bytes(2), std::size_t{0}}) {
    segments.push_back(std::make_unique<shm::Segment>(nullptr, bytes));
    tickets.push_back(segments.back()->ticket());
  }
  auto inner = make_loopback(2);
  unit::on_threads(2, [&](int r) {
    const std::shared_ptr<shm::NodeMemory> node = shm::NodeMemory::create(
        std::move(segments[r]), r, tickets, std::chrono::steady_clock::now() + 60s, {});
    CHECK(node->reach() == Reach::All && node->message_bytes() == 0);
    const Transport* const before = inner[r].get();
    CHECK(shm::over_node_memory(std::move(inner[r]), node).get() == before);
  });
}

TEST(messages_match_by_source_and_tag_in_order) {
  NodeRanks ranks(3);
  CHECK(std::string(ranks[0].message_path()) == "shm");
  std::vector<std::pair<int, Request>> sends;
  std::vector<int> values(40);
  std::iota(values.begin(), values.end(), 0);
  // Rank 0: 0..9 with tag 5 and 10..19 with tag 69, which uses the same list; rank 1: 20..29 with tag 5.
  for (int i = 0; i < 10; ++i) {
    sends.emplace_back(0, ranks[0].isend(kP2P, &values[i], 4, 2, 5));
    sends.emplace_back(0, ranks[0].isend(kP2P, &values[10 + i], 4, 2, 69));
    sends.emplace_back(1, ranks[1].isend(kP2P, &values[20 + i], 4, 2, 5));
  }
  ranks.finish(sends);  // short messages need no receiver
  std::vector<std::pair<int, Request>> receives;
  std::vector<int> got(30, -1);
  for (int i = 0; i < 10; ++i) {  // some before any message has arrived
    receives.emplace_back(2, ranks[2].irecv(kP2P, &got[20 + i], 4, 1, 5));
    receives.emplace_back(2, ranks[2].irecv(kP2P, &got[10 + i], 4, 0, 69));
    receives.emplace_back(2, ranks[2].irecv(kP2P, &got[i], 4, 0, 5));
    if (i == 4) {
      Request none = receives.back().second;
      CHECK(ranks[2].test(none));
      receives.pop_back();
    }
  }
  ranks.finish(receives);
  for (int i = 0; i < 30; ++i) CHECK(got[i] == i);
}

TEST(a_receive_from_any_source_returns_it_and_keeps_its_turn) {
  NodeRanks ranks(3);
  const int from_0 = 7, from_1 = 8;
  int any[2] = {0, 0}, named = 0;
  Request first = ranks[2].irecv(kP2P, &any[0], 4, kAnySource, 1);
  Request second = ranks[2].irecv(kP2P, &named, 4, 0, 1);
  Request third = ranks[2].irecv(kP2P, &any[1], 4, kAnySource, 1);
  RecvStatus status;
  CHECK(!ranks[2].test(first, &status));
  Request s0 = ranks[0].isend(kP2P, &from_0, 4, 2, 1);
  CHECK(ranks[0].test(s0));
  CHECK(ranks[2].test(first, &status) && status.source == 0 && status.tag == 1 && status.bytes == 4);
  Request s1 = ranks[1].isend(kP2P, &from_1, 4, 2, 1);
  CHECK(ranks[1].test(s1) && !ranks[2].test(second));
  CHECK(ranks[2].test(third, &status) && status.source == 1 && any[1] == 8);
  Request s2 = ranks[0].isend(kP2P, &from_0, 4, 2, 1);
  CHECK(ranks[0].test(s2) && ranks[2].test(second, &status) && named == 7 && any[0] == 7);
}

TEST(empty_messages_are_messages) {
  NodeRanks ranks(2);
  Request early = ranks[0].isend(kP2P, nullptr, 0, 1, 3);
  CHECK(ranks[0].test(early));
  Request receive = ranks[1].irecv(kP2P, nullptr, 0, 0, 3);
  RecvStatus status;
  status.bytes = 99;
  CHECK(ranks[1].test(receive, &status) && status.bytes == 0 && status.source == 0);
  receive = ranks[1].irecv(kP2P, nullptr, 0, 0, 3);
  CHECK(!ranks[1].test(receive));
  Request late = ranks[0].isend(kP2P, nullptr, 0, 1, 3);
  CHECK(ranks[0].test(late) && ranks[1].test(receive));
}

TEST(thousands_of_sends_before_any_receive) {
  NodeRanks ranks(2);
  constexpr std::size_t kCount = 3000, kBytes = 3000;  // many times the ring
  std::vector<Bytes> data;
  std::vector<std::pair<int, Request>> requests;
  for (unsigned i = 0; i < kCount; ++i) {
    data.push_back(pattern(kBytes, i));
    requests.emplace_back(0, ranks[0].isend(kP2P, data.back().data(), kBytes, 1, 0));
  }
  CHECK(!ranks[0].test(requests.back().second));
  std::vector<Bytes> got(kCount, Bytes(kBytes));
  for (auto& g : got) requests.emplace_back(1, ranks[1].irecv(kP2P, g.data(), kBytes, 0, 0));
  ranks.finish(requests);
  CHECK(got == data);
}

TEST(a_receiver_that_is_behind_keeps_little_of_what_waits) {
  NodeRanks ranks(2);
  constexpr std::size_t kCount = 60, kBytes = 100000;
  const Bytes data = pattern(kCount * kBytes, 4);
  Bytes got(data.size());
  int none = 0;
  Request poll = ranks[1].irecv(kP2P, &none, 4, 0, 99);
  std::vector<Request> sends, receives;
  for (std::size_t i = 0; i < kCount; ++i) {
    sends.push_back(ranks[0].isend(kP2P, &data[i * kBytes], kBytes, 1, 5));
    CHECK(!ranks[1].test(poll));
  }
  std::size_t ended = 0;
  for (Request& send : sends) ended += ranks[0].test(send);
  CHECK(ended * kBytes > std::size_t{1} << 20 && ended * kBytes < std::size_t{3} << 20);
  for (std::size_t i = 0; i < kCount; ++i)
    receives.push_back(ranks[1].irecv(kP2P, &got[i * kBytes], kBytes, 0, 5));
  for (std::size_t i = 0; i < kCount; ++i) ranks.finish({{0, sends[i]}, {1, receives[i]}});
  CHECK(got == data);
  Request send = ranks[0].isend(kP2P, data.data(), kBytes, 1, 5);
  CHECK(ranks[0].test(send));
  Request receive = ranks[1].irecv(kP2P, got.data(), kBytes, 0, 5);
  ranks.finish({{1, receive}});
  ranks[1].abandon(poll);
}

TEST(long_messages_arrive_whichever_side_is_first) {
  for (const bool kernel_copies : {false, true}) {
    NodeRanks ranks(2, kernel_copies);
    for (const std::size_t bytes : {131072u, 131073u, 262144u, 800001u, 5000000u})
      for (const bool early : {false, true}) {
        const Bytes data = pattern(bytes, static_cast<unsigned>(bytes));
        Bytes got(bytes);
        Request send, receive;
        if (!early) receive = ranks[1].irecv(kP2P, got.data(), bytes, 0, 9);
        send = ranks[0].isend(kP2P, data.data(), bytes, 1, 9);
        int small = 4, small_got = 0;  // overtakes the long one: another tag
        Request passing = ranks[0].isend(kP2P, &small, 4, 1, 8);
        if (early) {
          CHECK(ranks[0].test(send) == (bytes <= 131072));
          receive = ranks[1].irecv(kP2P, got.data(), bytes, 0, 9);
        }
        Request passed = ranks[1].irecv(kP2P, &small_got, 4, 0, 8);
        ranks.finish({{1, passed}, {0, passing}});
        ranks.finish({{0, send}, {1, receive}});
        CHECK(got == data && small_got == 4);
      }
  }
}

TEST(random_traffic_in_all_directions) {
  for (const bool kernel_copies : {false, true})
    for (const int p : {2, 3, 4}) {
      if (kernel_copies && p == 3) continue;
      constexpr unsigned kRounds = unit::kSanitized ? 3 : 6, kMessages = 12;
      NodeRanks ranks(p, kernel_copies);
      const auto size_of = [](int from, int to, unsigned round, unsigned i) -> std::size_t {
        std::minstd_rand random(static_cast<unsigned>(from * 1009 + to * 10007) + round * 100003u +
                                i * 1000003u + 1u);
        random.discard(5);
        switch (random() % 4) {
          case 0:
            return random() % 64;
          case 1:
            return random() % 5000;
          case 2:
            return 128000 + random() % 6000;
          default:
            return random() % 400000;
        }
      };
      const auto seed_of = [](int from, int to, unsigned round, unsigned i) {
        return static_cast<unsigned>(from * 31 + to * 17) + round * 1000 + i;
      };
      unit::on_threads(p, [&](int r) {
        std::minstd_rand random(static_cast<unsigned>(r) + 1u);
        for (unsigned round = 0; round < kRounds; ++round) {
          struct Message {
            bool send;
            int peer;
            unsigned i;
            Bytes data;
            Request request;
          };
          std::vector<Message> messages;
          for (int q = 0; q < p; ++q)
            for (unsigned i = 0; q != r && i < kMessages; ++i) {
              messages.push_back({true, q, i, pattern(size_of(r, q, round, i), seed_of(r, q, round, i)), {}});
              messages.push_back({false, q, i, Bytes(size_of(q, r, round, i)), {}});
            }
          std::shuffle(messages.begin(), messages.end(), random);
          // Messages of one peer and tag stay in order: there are three tags, i / 3 is the order.
          std::stable_sort(messages.begin(), messages.end(),
                           [](const Message& a, const Message& b) { return a.i / 3 < b.i / 3; });
          for (Message& m : messages) {
            const int tag = static_cast<int>(m.i % 3);
            m.request = m.send ? ranks[r].isend(kP2P, m.data.data(), m.data.size(), m.peer, tag)
                               : ranks[r].irecv(kP2P, m.data.data(), m.data.size(), m.peer, tag);
          }
          std::shuffle(messages.begin(), messages.end(), random);
          for (bool all = false; !all;) {
            all = true;
            for (Message& m : messages) {
              if (!m.request.active) continue;
              RecvStatus status;
              if (!ranks[r].test(m.request, &status)) {
                all = false;
              } else if (!m.send) {
                CHECK(status.source == m.peer && status.bytes == m.data.size());
                CHECK(m.data == pattern(m.data.size(), seed_of(m.peer, r, round, m.i)));
              }
            }
            if (!all) std::this_thread::yield();
          }
        }
      });
    }
}

TEST(a_message_of_another_length_fails_only_at_its_receiver) {
  for (const std::size_t bytes : {100u, 200000u}) {
    NodeRanks ranks(2);
    const Bytes data = pattern(bytes, 1);
    Bytes got(bytes + 10, 0xaa);
    Request send = ranks[0].isend(kP2P, data.data(), bytes, 1, 6);
    Request receive = ranks[1].irecv(kP2P, got.data(), bytes - 1, 0, 6);
    const std::string text = "recv: rank 0 sent " + std::to_string(bytes) +
                             " bytes with tag 6, the tensor to receive into holds " +
                             std::to_string(bytes - 1);
    const auto finish_receive = [&](RecvStatus* status) {
      while (!ranks[1].test(receive, status)) ranks[0].test(send);
      return true;
    };
    CHECK_THROWS(finish_receive(nullptr), Error, text.c_str());
    CHECK(!receive.active);
    ranks.finish({{0, send}});
    CHECK(got == Bytes(bytes + 10, 0xaa));
    send = ranks[0].isend(kP2P, data.data(), bytes, 1, 6);
    receive = ranks[1].irecv(kP2P, got.data(), bytes + 10, 0, 6);
    RecvStatus status;
    finish_receive(&status);
    ranks.finish({{0, send}});
    CHECK(status.bytes == bytes && std::equal(data.begin(), data.end(), got.begin()));
  }
}

TEST(what_is_abandoned_is_not_touched_again) {
  NodeRanks ranks(2);
  const Bytes data = pattern(2000000, 3);
  Bytes got(data.size(), 0);
  Request abandoned = ranks[1].irecv(kP2P, got.data(), 4, 0, 1), next;
  ranks[1].abandon(abandoned);
  CHECK(!abandoned.active && ranks[1].test(abandoned));
  int value = 5, next_got = 0;
  Request send = ranks[0].isend(kP2P, &value, 4, 1, 1);
  next = ranks[1].irecv(kP2P, &next_got, 4, 0, 1);
  ranks.finish({{1, next}, {0, send}});
  CHECK(next_got == 5 && got[0] == 0);

  // Abandoned in the middle of a long message; later messages still work.
  send = ranks[0].isend(kP2P, data.data(), data.size(), 1, 2);
  Request receive = ranks[1].irecv(kP2P, got.data(), got.size(), 0, 2);
  while (ranks[1].bytes_moved(receive) == 0) CHECK(!ranks[0].test(send) && !ranks[1].test(receive));
  ranks[1].abandon(receive);
  const Bytes before = got;
  Request reader = ranks[1].irecv(kP2P, &next_got, 4, 0, 99);  // some receive must progress the ring
  while (!ranks[0].test(send)) CHECK(!ranks[1].test(reader));
  ranks[1].abandon(reader);
  for (int turn = 0; turn < 20; ++turn) {
    auto [small, small_got] = ranks.message(&value, &next_got, 4, 3);
    ranks.finish({{0, small}, {1, small_got}});
  }
  CHECK(got == before && got != data);

  // A sender abandons an offer, a place in the queue, a stream.
  Bytes again(data.size(), 0);
  Request offer = ranks[0].isend(kP2P, data.data(), data.size(), 1, 4);
  ranks[0].abandon(offer);
  receive = ranks[1].irecv(kP2P, again.data(), again.size(), 0, 4);
  for (int turn = 0; turn < 20; ++turn) CHECK(!ranks[1].test(receive) && ranks[0].test(offer));
  std::vector<Request> queued;
  for (int i = 0; i < 20; ++i) queued.push_back(ranks[0].isend(kP2P, data.data(), 100000, 1, 5));
  CHECK(!ranks[0].test(queued.back()));
  for (Request& q : queued) ranks[0].abandon(q);
  ranks[1].abandon(receive);
  for (int i = 0; i < 20; ++i) {
    auto [small, small_got] = ranks.message(&value, &next_got, 4, 3);
    ranks.finish({{0, small}, {1, small_got}});
  }
}

TEST(a_waiter_sleeps_on_what_it_waits_for) {
  NodeRanks ranks(3);
  int value = 3, got = 0;
  Doorbell bell;
  Request receive = ranks[1].irecv(kP2P, &got, 4, 0, 1);
  CHECK(!ranks[1].test(receive) && ranks[1].doorbell(receive, bell));
  const std::uint64_t seen = bell.flag->load();
  CHECK(seen == bell.seen);
  Request other = ranks[2].isend(kP2P, &value, 4, 1, 1);  // another source: not what it waits for
  CHECK(ranks[2].test(other) && bell.flag->load() == seen);
  Request send = ranks[0].isend(kP2P, &value, 4, 1, 1);
  CHECK(bell.flag->load() != seen);
  CHECK(!ranks[1].doorbell(receive, bell));  // it is there: nothing to sleep for
  CHECK(ranks[1].test(receive) && ranks[0].test(send));
  Request any = ranks[1].irecv(kP2P, &got, 4, kAnySource, 7);
  CHECK(!ranks[1].test(any) && !ranks[1].doorbell(any, bell));  // two flags
  const Bytes data = pattern(100000, 1);
  std::vector<Request> sends;
  for (int i = 0; i < 20; ++i) sends.push_back(ranks[0].isend(kP2P, data.data(), data.size(), 1, 2));
  CHECK(!ranks[0].test(sends.back()) && ranks[0].doorbell(sends.back(), bell));
  CHECK(bell.flag->load() == bell.seen);
  CHECK(!ranks[1].test(any));
  CHECK(bell.flag->load() != bell.seen);
  // Sleeps in the kernel until the message wakes it, longer than any test runs.
  receive = ranks[1].irecv(kP2P, &got, 4, 0, 3);
  CHECK(!ranks[1].test(receive) && !ranks[1].test(receive));
  for (Request& s : sends)
    while (!ranks[0].test(s)) CHECK(!ranks[1].test(receive));
  while (!ranks[1].doorbell(receive, bell)) CHECK(!ranks[1].test(receive));
  std::thread waker([&, flag = bell] {
    while (flag.sleepers->load() == 0) std::this_thread::yield();
    Request wake = ranks[0].isend(kP2P, &value, 4, 1, 3);
    CHECK(ranks[0].test(wake));
  });
  bell.sleep(50s);
  waker.join();
  CHECK(ranks[1].test(receive) && got == 3);
}

TEST(what_is_illegal_is_refused_at_once) {
  NodeRanks ranks(2);
  char byte = 0;
  CHECK_THROWS(ranks[0].isend(kP2P, &byte, 1, 2, 0), Error, "peer=2 is not in 0..1");
  CHECK_THROWS(ranks[0].irecv(kP2P, &byte, 1, -2, 0), Error, "peer=-2 is not in 0..1");
  CHECK_THROWS(ranks[0].isend(kP2P, &byte, 1, 1, 40000), Error, "tag=40000 is not in 0..32767");
  CHECK_THROWS(ranks[0].isend(kP2P, &byte, kMaxMessageBytes + 1, 1, 0), Error, "in one message");
  // Other channels belong to the inner transport.
  int value = 6, got = 0, passing = 0;
  Request receive = ranks[1].irecv(kP2P, &passing, 4, 0, 1);
  Request collective = ranks[1].irecv(Channel::Collective, &got, 4, 0, 1);
  Request send = ranks[0].isend(Channel::Collective, &value, 4, 1, 1);
  ranks.finish({{0, send}, {1, collective}});
  CHECK(got == 6 && !ranks[1].test(receive));
}

TEST(the_engine_carries_them) {
  World world(3, {.node = true});
  world.run_and_close([&](int r) {
    Group& group = *world.ranks[r].group;
    const int right = (r + 1) % 3, left = (r + 2) % 3;
    for (const std::size_t bytes : {8u, 200000u, 3000000u}) {
      const Bytes data = pattern(bytes, static_cast<unsigned>(r));
      Bytes got(bytes);
      const MessageCall send{true, const_cast<std::uint8_t*>(data.data()), bytes, right, 5};
      const MessageCall receive{false, got.data(), bytes, bytes == 8 ? kAnySource : left, 5};
      auto both = group.issue({send, receive}, {{.name = "batch"}});
      CHECK(both->info().algorithm == "shm");
      world.wait(r, both);
      CHECK(got == pattern(bytes, static_cast<unsigned>(left)));
      CHECK(static_cast<const MessageExecution&>(both->part(1)).source() == left);
      // The waiter of a one-way message sleeps on the ring's flags.
      if (r == 2) continue;
      auto op = group.issue({r == 0 ? MessageCall{true, const_cast<std::uint8_t*>(data.data()), bytes, 1, 1}
                                    : MessageCall{false, got.data(), bytes, 0, 1}},
                            named("message", foreground()));
      world.wait(r, op);
      CHECK(r == 0 || got == pattern(bytes, 0));
    }
  });
}

UNIT_MAIN_THAT_LEAKS()
