// The ring of messages between two ranks of a node.
#include "test.hpp"
#include "transport/shm/ring.hpp"

using namespace mpi_gdr;

namespace {

// Both ends use one address, so that ThreadSanitizer checks their ordering.
struct LocalRing {
  explicit LocalRing(std::size_t size)
      : bytes(size), memory(static_cast<std::byte*>(std::aligned_alloc(64, size))) {
    std::memset(memory, 0, size);
    writer = shm::RingWriter(memory, bytes, &tail, &sleepers);
    reader = shm::RingReader(memory, bytes, &tail, &sleepers);
  }
  ~LocalRing() { std::free(memory); }
  std::size_t bytes;
  std::byte* memory;
  std::atomic<std::uint64_t> tail{0};
  std::atomic<std::uint32_t> sleepers{0};
  shm::RingWriter writer;
  shm::RingReader reader;
};

}  // namespace

TEST(a_ring_carries_records_in_order_between_two_threads) {
  constexpr unsigned kRecords = unit::kSanitized ? 5000 : 20000;
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{65536}}) {
    LocalRing ring(bytes);
    // Payloads look like stamps.
    const auto length = [&](unsigned i) { return (i * 7919u) % (ring.writer.max_payload() / 8 + 1) * 8; };
    std::thread writer([&] {
      for (unsigned i = 0; i < kRecords; ++i) {
        std::byte* to;
        while (!(to = ring.writer.reserve(length(i)))) {
          ring.writer.bell(&ring.sleepers).sleep(1000us);
        }
        for (std::size_t k = 0; k < length(i); k += 8) {
          const std::uint64_t stamp = (std::uint64_t{i} + k / 8) * 64 + 1;
          std::memcpy(to + k, &stamp, 8);
        }
        ring.writer.publish(
            {.id = i, .bytes = length(i), .payload = static_cast<std::uint32_t>(length(i)), .kind = 1});
      }
    });
    bool good = true;
    for (unsigned i = 0; i < kRecords;) {
      shm::RecordHeader header;
      const std::byte* const from = ring.reader.peek(header);
      if (!from) {
        ring.reader.ring();
        Doorbell bell;
        if (ring.reader.bell(bell, &ring.sleepers)) bell.sleep(1000us);
        continue;
      }
      good = good && header.id == i && header.payload == length(i);
      for (std::size_t k = 0; good && k < length(i); k += 8) {
        std::uint64_t stamp;
        std::memcpy(&stamp, from + k, 8);
        good = stamp == (std::uint64_t{i} + k / 8) * 64 + 1;
      }
      ring.reader.pop();
      ++i;
    }
    ring.reader.ring();
    writer.join();
    CHECK(good);
  }
}

TEST(a_record_that_leaves_the_ring_is_refused) {
  LocalRing ring(1024);
  CHECK(ring.writer.reserve(8));
  ring.writer.publish({.payload = 8, .kind = 1});
  reinterpret_cast<shm::Record*>(ring.memory)->header.payload = 1u << 30;
  shm::RecordHeader header;
  CHECK_THROWS(ring.reader.peek(header), Error, "a message record of 1073741824 bytes");
}

TEST(rings_of_many_ranks_stay_modest) {
  for (const int p : {1, 2, 7, 32, 64, 128, 256}) {
    const shm::MessageArea area(p);
    CHECK(area.ring_bytes() >= 32768 && (area.ring_bytes() & (area.ring_bytes() - 1)) == 0);
    CHECK(area.bytes() <= std::size_t{9} << 20);
  }
}

UNIT_MAIN()
