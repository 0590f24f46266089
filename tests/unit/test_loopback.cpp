// The loopback transport: MPI's matching, and faults on request.
#include "doubles/loopback.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

constexpr Channel kChannel = Channel::Collective;

void finish(Transport& transport, Request& request, RecvStatus* status = nullptr) {
  while (!transport.test(request, status)) std::this_thread::yield();
}

int receive(Transport& transport, int peer, int tag, Channel channel = kChannel,
            RecvStatus* status = nullptr) {
  int value = -1;
  Request request = transport.irecv(channel, &value, sizeof value, peer, tag);
  finish(transport, request, status);
  return value;
}

void send(Transport& transport, int value, int peer, int tag, Channel channel = kChannel) {
  Request request = transport.isend(channel, &value, sizeof value, peer, tag);
  finish(transport, request);
}

auto with_faults() {
  const std::vector faults = {std::make_shared<LoopbackFaults>(), std::make_shared<LoopbackFaults>()};
  return std::pair(faults, make_loopback(2, {.faults = faults}));
}

}  // namespace

TEST(messages_match_by_channel_source_and_tag_in_order) {
  const auto ranks = make_loopback(3);
  send(*ranks[0], 1, 2, 5);
  send(*ranks[0], 2, 2, 5);
  send(*ranks[1], 3, 2, 5);
  send(*ranks[0], 4, 2, 6);
  send(*ranks[0], 5, 2, 5, Channel::Accelerator);
  CHECK(receive(*ranks[2], 0, 6) == 4);
  CHECK(receive(*ranks[2], 1, 5) == 3);
  CHECK(receive(*ranks[2], 0, 5, Channel::Accelerator) == 5);
  CHECK(receive(*ranks[2], 0, 5) == 1);
  CHECK(receive(*ranks[2], 0, 5) == 2);
}

TEST(posted_receives_match_in_order_too) {
  const auto ranks = make_loopback(2);
  int a = 0, b = 0;
  Request first = ranks[1]->irecv(kChannel, &a, sizeof a, 0, 1),
          second = ranks[1]->irecv(kChannel, &b, sizeof b, 0, 1);
  CHECK(!ranks[1]->test(first) && first.active);
  send(*ranks[0], 10, 1, 1);
  send(*ranks[0], 20, 1, 1);
  finish(*ranks[1], second);
  finish(*ranks[1], first);
  CHECK(a == 10 && b == 20 && !first.active && ranks[1]->test(first));
}

TEST(any_source_takes_the_first_arrival_and_returns_its_source) {
  const auto ranks = make_loopback(3);
  send(*ranks[2], 7, 0, 4, Channel::PointToPoint);
  send(*ranks[1], 8, 0, 4, Channel::PointToPoint);
  RecvStatus status;
  CHECK(receive(*ranks[0], kAnySource, 4, Channel::PointToPoint, &status) == 7);
  CHECK(status.source == 2 && status.tag == 4 && status.bytes == sizeof(int));
  CHECK(receive(*ranks[0], kAnySource, 4, Channel::PointToPoint, &status) == 8 && status.source == 1);
}

TEST(short_sends_are_buffered_long_ones_wait) {
  const auto ranks = make_loopback(2, {.eager_bytes = 8});
  std::vector<char> brief(8, 'a'), longer(9, 'b'), got(9);
  Request eager = ranks[0]->isend(kChannel, brief.data(), brief.size(), 1, 0);
  CHECK(ranks[0]->test(eager));
  std::fill(brief.begin(), brief.end(), 'x');  // buffered: reusable
  Request rendezvous = ranks[0]->isend(kChannel, longer.data(), longer.size(), 1, 0);
  CHECK(!ranks[0]->test(rendezvous));
  for (const std::size_t expected : {8u, 9u}) {
    RecvStatus status;
    Request request = ranks[1]->irecv(kChannel, got.data(), got.size(), 0, 0);
    finish(*ranks[1], request, &status);
    CHECK(status.bytes == expected && got[0] == (expected == 8 ? 'a' : 'b'));
  }
  CHECK(ranks[0]->test(rendezvous));
}

TEST(empty_messages_are_messages) {
  const auto ranks = make_loopback(2);
  Request request = ranks[1]->irecv(kChannel, nullptr, 0, 0, 3);
  CHECK(!ranks[1]->test(request));
  Request sent = ranks[0]->isend(kChannel, nullptr, 0, 1, 3);
  CHECK(ranks[0]->test(sent) && ranks[1]->test(request));
}

TEST(a_message_longer_than_its_receive_is_an_error) {
  const auto ranks = make_loopback(2);
  int values[2] = {1, 2}, got[2] = {0, 99};
  Request sent = ranks[0]->isend(kChannel, values, sizeof values, 1, 0);
  Request request = ranks[1]->irecv(kChannel, got, sizeof got[0], 0, 0);
  CHECK_THROWS(ranks[1]->test(request), Error, "message truncated: 8 bytes from rank 0");
  CHECK(!request.active && got[1] == 99 && ranks[0]->test(sent));
}

TEST(arguments_out_of_range_are_named) {
  const auto ranks = make_loopback(2, {.max_tag = 100});
  int v = 0;
  CHECK_THROWS(ranks[0]->isend(kChannel, &v, sizeof v, 2, 0), Error, "peer=2 is not in 0..1");
  CHECK_THROWS(ranks[0]->isend(kChannel, &v, sizeof v, kAnySource, 0), Error, "peer=-1");
  CHECK_THROWS(ranks[0]->irecv(kChannel, &v, sizeof v, 1, 101), Error, "tag=101 is not in 0..100");
  CHECK_THROWS(ranks[0]->irecv(kChannel, &v, kMaxMessageBytes + 1, 1, 0), Error,
               "1073741825 bytes in one message");
  CHECK_THROWS(make_loopback(0), Error, "size=0");
}

TEST(late_tests_delay_completion_but_not_for_ever) {
  const auto ranks = make_loopback(2, {.max_late_tests = 50, .seed = 3});
  unsigned late = 0;
  for (int i = 0; i < 20; ++i) {
    send(*ranks[0], i, 1, 0);
    int value = -1;
    Request request = ranks[1]->irecv(kChannel, &value, sizeof value, 0, 0);
    unsigned tries = 0;
    while (!ranks[1]->test(request)) ++tries;
    CHECK(tries <= 50 && value == i);
    late += tries;
  }
  CHECK(late > 0);
}

TEST(a_dead_rank_delivers_no_message) {
  const auto [faults, ranks] = with_faults();
  send(*ranks[0], 1, 1, 0);
  faults[0]->dead = true;
  send(*ranks[0], 2, 1, 0);
  CHECK(receive(*ranks[1], 0, 0) == 1);
  int value = -1;
  Request request = ranks[1]->irecv(kChannel, &value, sizeof value, 0, 0);
  CHECK(!ranks[1]->test(request) && value == -1);
  ranks[1]->abandon(request);
  CHECK(!request.active);
}

TEST(an_abandoned_receive_takes_no_message) {
  const auto ranks = make_loopback(2, {.eager_bytes = 0});
  int given_up = -1, value = 5;
  Request request = ranks[1]->irecv(kChannel, &given_up, sizeof given_up, 0, 0);
  ranks[1]->abandon(request);
  Request sent = ranks[0]->isend(kChannel, &value, sizeof value, 1, 0);
  CHECK(!ranks[0]->test(sent));
  CHECK(receive(*ranks[1], 0, 0) == 5 && given_up == -1 && ranks[0]->test(sent));
  Request withdrawn = ranks[0]->isend(kChannel, &value, sizeof value, 1, 0);
  ranks[0]->abandon(withdrawn);
  Request late = ranks[1]->irecv(kChannel, &given_up, sizeof given_up, 0, 0);
  CHECK(!ranks[1]->test(late) && given_up == -1);
}

TEST(a_stuck_rank_blocks_inside_test_until_released) {
  const auto [faults, ranks] = with_faults();
  faults[1]->stick();
  std::atomic<bool> returned{false};
  std::thread other([&] {
    Request nothing;
    ranks[1]->test(nothing);
    returned.store(true, std::memory_order_release);
  });
  while (!faults[1]->held()) std::this_thread::yield();
  const bool early = returned.load(std::memory_order_acquire);
  faults[1]->release();
  other.join();
  CHECK(!early && !faults[1]->held());
}

TEST(the_nth_call_throws) {
  const auto [faults, ranks] = with_faults();
  faults[0]->calls_before_error.store(2, std::memory_order_release);
  send(*ranks[0], 1, 1, 0);  // isend and test
  int v = 0;
  CHECK_THROWS(ranks[0]->isend(kChannel, &v, sizeof v, 1, 0), Error, "injected error in isend on rank 0");
  CHECK(receive(*ranks[1], 0, 0) == 1);
}

TEST(native_collectives) {
  constexpr int kSize = 3;
  const auto ranks = make_loopback(kSize);
  const auto all = [&](auto make) {
    std::vector<Request> requests;
    for (int r = 0; r < kSize; ++r) {
      requests.push_back(ranks[r]->istart_native(kChannel, make(r)));
      if (r + 1 < kSize) CHECK(!ranks[0]->test(requests[0]));
    }
    for (int r = 0; r < kSize; ++r) CHECK(ranks[r]->test(requests[r]));
  };
  std::int64_t values[kSize][2] = {{1, -5}, {2, -6}, {3, 7}}, gathered[kSize][2 * kSize];
  all([&](int r) {
    return NativeCollective{Collective::AllGather, values[r], gathered[r], 2, DataType::Int64};
  });
  for (int r = 0; r < kSize; ++r) CHECK(std::memcmp(gathered[r], values, sizeof values) == 0);
  all([&](int r) {  // in place
    return NativeCollective{Collective::AllReduce, values[r], values[r], 2, DataType::Int64, ReduceOp::Min};
  });
  for (int r = 0; r < kSize; ++r) CHECK(values[r][0] == 1 && values[r][1] == -6);
  values[2][0] = 50;
  all([&](int r) {
    return NativeCollective{Collective::Broadcast, nullptr, values[r], 2, DataType::Int64, ReduceOp::Sum, 2};
  });
  for (int r = 0; r < kSize; ++r) CHECK(values[r][0] == 50 && values[r][1] == -6);
  float f[kSize] = {1, 2, 3.5f}, sum[kSize];
  all([&](int r) {
    return NativeCollective{Collective::AllReduce, &f[r], &sum[r], 1, DataType::Float32, ReduceOp::Sum};
  });
  for (int r = 0; r < kSize; ++r) CHECK(sum[r] == 6.5f);
  all([&](int) { return NativeCollective{}; });
  CHECK(!ranks[0]->has_native(Collective::AllReduce, DataType::BFloat16, ReduceOp::Sum, 1));
  CHECK(!ranks[0]->has_native(Collective::AllToAll, DataType::Float32, ReduceOp::Sum, 1));
  CHECK_THROWS(ranks[0]->istart_native(kChannel, {Collective::Reduce}), Error, "no native reduce");
}

TEST(native_collectives_that_differ_are_an_error_on_all) {
  const auto ranks = make_loopback(2);
  float f = 0;
  Request barrier = ranks[0]->istart_native(kChannel, {});
  Request other =
      ranks[1]->istart_native(kChannel, {Collective::Broadcast, nullptr, &f, 1, DataType::Float32});
  CHECK_THROWS(ranks[0]->test(barrier), Error, "different native collectives");
  CHECK_THROWS(ranks[1]->test(other), Error, "different native collectives");
}

UNIT_MAIN()
