// Long messages that both ends copy: division of the chunks, ends that stop, memory that the kernel refuses.
#include <sys/mman.h>

#include "node_ranks.hpp"
#include "transport/shm/ring.hpp"
#include "transport/shm/two_ended_copy.hpp"

using namespace engine_tests;

namespace {

constexpr std::size_t kBytes = 5000000;
// Enough turns for a rank to do all that it can do alone.
constexpr int kTurns = 100;

// Memory with changeable access rights.
class Pages {
 public:
  Pages() : memory_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    CHECK(memory_ != MAP_FAILED);
  }
  ~Pages() { ::munmap(memory_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void allow(int rights) { CHECK(::mprotect(memory_, kBytes, rights) == 0); }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(memory_); }
  bool operator==(const Bytes& bytes) const { return std::equal(bytes.begin(), bytes.end(), data()); }

 private:
  void* const memory_;
};

// The cell of rank 1's receive from rank 0.
shm::CopyCell& cell(NodeRanks& ranks) {
  return *reinterpret_cast<shm::CopyCell*>(shm::MessageArea(2).copy_lines(ranks.nodes[1]->messages(1), 0));
}

}  // namespace

#if !defined(__SANITIZE_THREAD__)  // for the reason in test_shared_memory.cpp
TEST(long_messages_from_group_memory_are_copied_once) {
  shm::Arena first(std::size_t{16} << 20), second(std::size_t{16} << 20);
  NodeRanks ranks(2, /*kernel_copies=*/false, {&first, &second});
  constexpr std::size_t kBytes = 3000001;
  const Bytes data = pattern(kBytes, 4);
  auto* from = static_cast<std::uint8_t*>(first.allocate(kBytes));
  std::memcpy(from, data.data(), kBytes);
  Bytes got(kBytes);
  auto [send, receive] = ranks.message(from, got.data(), kBytes);
  // The receiver copies alone; the sender is only notified at the end.
  for (int turns = 0; !ranks[1].test(receive); ++turns) CHECK(turns < 100);
  CHECK(got == data);
  CHECK(ranks[0].test(send));
  first.free(from);
}
#endif

TEST(both_ends_copy_a_long_message) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  const Bytes data = pattern(5000001, 6);
  for (const bool helped : {true, false}) {
    Bytes got(data.size());
    auto [send, receive] = ranks.message(data.data(), got.data(), data.size());
    CHECK(!ranks[1].test(receive));  // opens it and takes the first chunks
    const std::uint64_t first = ranks[1].bytes_moved(receive);
    CHECK(first > 0 && first < data.size() / 2);
    if (helped) {
      CHECK(!ranks[0].test(send));
      CHECK(ranks[0].bytes_moved(send) > 0 && ranks[0].bytes_moved(send) < data.size() / 2);
      Doorbell bell;
      CHECK(!ranks[0].doorbell(send, bell));  // it has not reached the end
    }
    for (int turns = 0; !ranks[1].test(receive); ++turns) CHECK(turns < 100);
    CHECK(got == data && ranks[0].test(send));
  }
}

TEST(each_end_takes_its_halves_of_several_messages_before_the_other_ones) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  constexpr std::size_t kMessages = 20, kLength = 256 * 1024;  // more than there are cells
  const Bytes data = pattern(kMessages * kLength, 12);
  Bytes got(data.size());
  std::vector<Request> sends, receives;
  for (std::size_t i = 0; i < kMessages; ++i) {
    sends.push_back(ranks[0].isend(kP2P, &data[i * kLength], kLength, 1, 0));
    receives.push_back(ranks[1].irecv(kP2P, &got[i * kLength], kLength, 0, 0));
  }
  CHECK(!ranks[1].test(receives[0]));  // copies two halves at a time
  for (std::size_t i = 0; i < 3; ++i) CHECK(ranks[1].bytes_moved(receives[i]) == (i < 2 ? kLength / 2 : 0));
  CHECK(!ranks[0].test(sends[0]));  // copies its halves of the messages that the receiver has announced
  CHECK(ranks[0].bytes_moved(sends[0]) == kLength / 2 && ranks[0].bytes_moved(sends[1]) == kLength / 2);
  CHECK(std::equal(got.begin(), got.begin() + 2 * kLength, data.begin()));
  for (std::size_t i = 0; i < kMessages; ++i)  // the receiver can finish alone
    for (int turns = 0; !ranks[1].test(receives[i]); ++turns) CHECK(turns < 100);
  for (Request& send : sends) CHECK(ranks[0].test(send));
  CHECK(got == data);
}

TEST(a_copy_that_is_given_up_leaves_the_next_one_alone) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  const Bytes data = pattern(5000001, 7);
  for (const bool sender_gives_up : {true, false}) {
    Bytes got(data.size());
    auto [send, receive] = ranks.message(data.data(), got.data(), data.size());
    CHECK(!ranks[1].test(receive) && !ranks[0].test(send));
    Request reader = ranks[0].irecv(kP2P, nullptr, 0, 1, 9);
    if (sender_gives_up) {
      ranks[0].abandon(send);
      const std::uint64_t moved = ranks[1].bytes_moved(receive);
      CHECK(!ranks[0].test(reader) && !ranks[1].test(receive) && ranks[1].bytes_moved(receive) > moved);
      for (int turns = 0; !ranks[1].test(receive); ++turns) CHECK(turns < 100);  // as if it had not abandoned
      CHECK(got == data);
    } else {
      ranks[1].abandon(receive);
      const Bytes before = got;
      CHECK(!ranks[0].test(reader) && got == before);
      ranks[0].abandon(send);
    }
    ranks[0].abandon(reader);
    Bytes next(data.size());
    std::tie(send, receive) = ranks.message(data.data(), next.data(), data.size(), 1);
    ranks.finish({{0, send}, {1, receive}});
    CHECK(next == data);
  }
}

TEST(a_sender_that_stops_inside_a_chunk_blocks_only_its_receiver) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  const Bytes data = pattern(kBytes, 8);
  Bytes got(kBytes), next(kBytes);
  auto [send, receive] = ranks.message(data.data(), got.data(), kBytes);
  CHECK(!ranks[1].test(receive));
  cell(ranks).taken += 1 << 16;  // as the sender does before it copies
  for (int turn = 0; turn < kTurns; ++turn) CHECK(!ranks[1].test(receive));
  CHECK(ranks[1].bytes_moved(receive) > kBytes * 9 / 10 && ranks[1].bytes_moved(receive) < kBytes);
  ranks[1].abandon(receive);
  ranks[0].abandon(send);
  std::tie(send, receive) = ranks.message(data.data(), next.data(), kBytes);
  ranks.finish({{0, send}, {1, receive}});
  CHECK(next == data);
}

TEST(what_the_kernel_does_not_read_goes_through_the_ring) {
  const Bytes data = pattern(kBytes, 9);
  for (const bool helped : {false, true}) {
    NodeRanks ranks(2, /*kernel_copies=*/true);
    Pages from;
    std::memcpy(from.data(), data.data(), kBytes);
    Bytes got(kBytes);
    auto [send, receive] = ranks.message(from.data(), got.data(), kBytes);
    if (helped) {  // refused in the middle
      CHECK(!ranks[1].test(receive) && !ranks[0].test(send));
      CHECK(ranks[0].bytes_moved(send) > 0);
    }
    from.allow(PROT_NONE);
    CHECK(!ranks[1].test(receive) && ranks[1].bytes_moved(receive) == 0);
    from.allow(PROT_READ);
    Bytes second(kBytes);  // follows it and is not refused
    auto [next, next_receive] = ranks.message(data.data(), second.data(), kBytes);
    ranks.finish({{0, send}, {1, receive}, {0, next}, {1, next_receive}});
    CHECK(got == data && second == data);
  }
}

TEST(what_the_kernel_does_not_write_is_left_to_its_receiver) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  const Bytes data = pattern(kBytes, 10);
  Pages got;
  auto [send, receive] = ranks.message(data.data(), got.data(), kBytes);
  CHECK(!ranks[1].test(receive));
  const std::uint64_t taken = cell(ranks).taken;
  got.allow(PROT_READ);
  for (int turn = 0; turn < kTurns; ++turn) CHECK(!ranks[0].test(send));
  CHECK(ranks[0].bytes_moved(send) == 0 && cell(ranks).taken == taken);
  got.allow(PROT_READ | PROT_WRITE);
  for (int turns = 0; !ranks[1].test(receive); ++turns) CHECK(turns < kTurns);  // without the sender
  CHECK(got == data && ranks[0].test(send));
}

TEST(an_offer_with_the_id_of_another_is_refused) {
  NodeRanks ranks(2, /*kernel_copies=*/true);
  const Bytes data = pattern(kBytes, 11);
  Bytes got(kBytes);
  ranks[0].isend(kP2P, data.data(), kBytes, 1, 0);
  const shm::MessageArea area(2);
  for (const std::uint64_t id : {0u, 2u}) {  // the first id is 1
    reinterpret_cast<shm::Record*>(area.ring(ranks.nodes[0]->messages(0), 1))->header.id = id;
    Request receive = ranks[1].irecv(kP2P, got.data(), kBytes, 0, 0);
    CHECK_THROWS(ranks[1].test(receive), Error, "is malformed: kind 2");
    CHECK(ranks[1].bytes_moved(receive) == 0);
    ranks[1].abandon(receive);
  }
}

TEST(a_copy_opened_in_a_cell_that_is_none_is_refused) {
  for (const int cell : {-1, shm::kCopyCells}) {
    NodeRanks ranks(2, /*kernel_copies=*/true);
    const Bytes data = pattern(kBytes, 13);
    Bytes got(kBytes);
    auto [send, receive] = ranks.message(data.data(), got.data(), kBytes);
    CHECK(!ranks[1].test(receive));
    const shm::MessageArea area(2);
    reinterpret_cast<shm::Record*>(area.ring(ranks.nodes[1]->messages(1), 0))->header.tag = cell;
    CHECK_THROWS(ranks[0].test(send), Error, "is malformed: kind 5");
    ranks[1].abandon(receive);
    ranks[0].abandon(send);
  }
}

UNIT_MAIN_THAT_LEAKS()
