// A rank's message records in shared memory are changed at random: each call returns or throws Error, and
// nothing outside the buffers changes. AddressSanitizer checks the rest.
#include "node_ranks.hpp"
#include "transport/shm/ring.hpp"
#include "transport/shm/two_ended_copy.hpp"

using namespace engine_tests;

namespace {

// Bytes of one message through the ring: one record, two, many.
constexpr std::size_t kShort = 100, kBytes = 140000, kLong = 3000000;
// Bytes of all records that the test sends.
constexpr std::size_t kRecords = 384;
constexpr int kTurns = unit::kSanitized ? 400 : 1500;

// A receive buffer between guard bytes.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : all_(kGuard + bytes + kGuard, 0xaa) {}
  std::uint8_t* data() { return all_.data() + kGuard; }
  std::size_t size() const { return all_.size() - 2 * kGuard; }
  bool intact() const {
    const Bytes guard(kGuard, 0xaa);
    return std::memcmp(all_.data(), guard.data(), kGuard) == 0 &&
           std::memcmp(all_.data() + all_.size() - kGuard, guard.data(), kGuard) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 1 << 17;
  Bytes all_;
};

class Words {
 public:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  // Plausible wrong values of counts, lengths, ids and kinds.
  std::uint64_t operator()() {
    const std::uint64_t near[] = {
        0, 1, 2, 3, 4, 5, 6, kShort, kBytes, 2 * kBytes, 60000, kMaxMessageBytes, ~0u, ~0ull};
    const std::uint64_t number = near[below(std::size(near))] + below(3) - 1;
    switch (below(4)) {
      case 0:
        return random_();
      case 1:
        return number << 32 | below(20);
      default:
        return number;
    }
  }

 private:
  std::mt19937_64 random_{20261123};
};

bool ended(Transport& rank, Request& request) {
  try {
    return rank.test(request);
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

TEST(records_of_messages) {
  Words word;
  int failures = 0;
  const Bytes data = pattern(kBytes, 1);
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool kernel_copies = turn % 2 == 0;
    // Rank 0 makes no calls after its records change: it may only harm itself.
    NodeRanks ranks(2, kernel_copies);
    const Bytes sent = data;
    std::vector<Guarded> got(4, Guarded(kBytes));
    std::vector<Request> requests;
    const auto receive = [&](std::size_t i) {
      requests.push_back(ranks[1].irecv(kP2P, got[i].data(), got[i].size(), 0, static_cast<int>(i % 2)));
    };
    receive(0);
    Request first = ranks[0].isend(kP2P, sent.data(), kBytes, 1, 0);
    ranks[0].isend(kP2P, sent.data(), kShort, 1, 1);
    ranks[0].isend(kP2P, sent.data(), kBytes - 1, 1, 0);
    ranks[0].isend(kP2P, sent.data(), 0, 1, 1);
    std::size_t begin = 0, records = kRecords;
    if (!kernel_copies) {  // the requested data follows them in two records
      CHECK(!ranks[1].test(requests[0]) && ranks[0].test(first));
      begin = std::exchange(records, sizeof(shm::Record));
      if (word.below(2)) begin += shm::record_bytes(shm::MessageArea(2).ring_bytes() / 8);  // the last one
    }
    std::byte* const ring = shm::MessageArea(2).ring(ranks.nodes[0]->messages(0), 1);
    for (std::size_t changes = 1 + word.below(4); changes > 0; --changes) {
      const std::uint64_t value = word();
      const std::size_t bytes = word.below(2) ? 8 : 4;
      std::memcpy(ring + begin + word.below(records / bytes) * bytes, &value, bytes);
    }
    for (const std::size_t i : {1u, 2u, 3u}) {
      try {
        receive(i);
      } catch (const Error&) {
        ++failures;
      }
    }
    for (int pass = 0; pass < 10; ++pass)
      for (Request& request : requests) {
        try {
          ranks[1].test(request);
        } catch (const Error& e) {
          CHECK(std::strlen(e.what()) > 0);
          ++failures;
        }
      }
    for (Request& request : requests) ranks[1].abandon(request);
    for (const Guarded& g : got) CHECK(g.intact());
    CHECK(sent == data);
  }
  CHECK(failures > 0);
}

TEST(cells_of_copies) {
  Words word;
  NodeRanks ranks(2, /*kernel_copies=*/true);
  auto& cell =
      *reinterpret_cast<shm::CopyCell*>(shm::MessageArea(2).copy_lines(ranks.nodes[1]->messages(1), 0));
  const Bytes data = pattern(kLong, 2);
  const Bytes sent = data;
  for (int turn = 0; turn < kTurns / 3; ++turn) {
    Guarded got(kLong);
    auto [send, receive] = ranks.message(sent.data(), got.data(), kLong);
    for (int pass = 0; pass < 20; ++pass) {
      if (pass > 0) {
        auto& number = word.below(2) ? cell.taken : cell.helped;
        number = word.below(2) ? word() : number & ~0xffffffffull | (word() & 0xffffffff);
      }
      const bool received = ended(ranks[1], receive);
      if (ended(ranks[0], send) && received) break;
    }
    ranks[1].abandon(receive);
    ranks[0].abandon(send);
    CHECK(got.intact() && sent == data);
  }
  Guarded got(kLong);
  auto [send, receive] = ranks.message(sent.data(), got.data(), kLong);
  ranks.finish({{0, send}, {1, receive}});
  CHECK(std::equal(data.begin(), data.end(), got.data()));
}

UNIT_MAIN()
