// Counts and bytes beyond 2^31 and 2^32 without the memory: a transport that only records messages.
#include <sys/mman.h>

#include "engine/calls.hpp"
#include "execution/local_step.hpp"
#include "execution/round_messages.hpp"
#include "execution/simple_executions.hpp"
#include "schedules.hpp"

using namespace mpi_gdr;

namespace {

class AddressSpace {
 public:
  explicit AddressSpace(std::size_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base_ != MAP_FAILED);
  }
  ~AddressSpace() { munmap(base_, bytes_); }
  AddressSpace(const AddressSpace&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(base_); }
  std::size_t size() const { return bytes_; }

 private:
  void* base_;
  std::size_t bytes_;
};

struct Message {
  const std::byte* data;
  std::size_t bytes;
  int peer, tag;
};

// Completes everything at once, with the requested length.
class Recorder final : public Transport {
 public:
  explicit Recorder(int rank = 0, int size = 2) : rank_(rank), size_(size) {}
  std::vector<Message> sent, received;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return 32767; }
  Request isend(Channel, const void* data, std::size_t bytes, int peer, int tag) override {
    CHECK(bytes <= kMaxMessageBytes);
    sent.push_back({static_cast<const std::byte*>(data), bytes, peer, tag});
    return {0, true};
  }
  Request irecv(Channel, void* data, std::size_t bytes, int peer, int tag) override {
    CHECK(bytes <= kMaxMessageBytes);
    received.push_back({static_cast<std::byte*>(data), bytes, peer, tag});
    return {received.size(), true};
  }
  bool test(Request& request, RecvStatus* status) override {
    request.active = false;
    if (status) {
      const Message& m = received.at(request.handle - 1);
      *status = {m.peer, m.tag, m.bytes};
    }
    return true;
  }
  void abandon(Request&) override {}
  bool has_native(Collective, DataType, ReduceOp, std::uint64_t) const override { return false; }
  Request istart_native(Channel, const NativeCollective&) override { return {}; }

 private:
  int rank_, size_;
};

// Message lengths by peer and tag, in order: both sides must agree.
using Lengths = std::map<std::pair<int, int>, std::vector<std::size_t>>;  // (peer, tag)

Lengths lengths(const std::vector<Message>& messages) {
  Lengths by_peer;
  for (const Message& m : messages) by_peer[{m.peer, m.tag}].push_back(m.bytes);
  return by_peer;
}

bool inside(const std::byte* address, std::size_t bytes, const AddressSpace& space) {
  return address >= space.data() && address + bytes <= space.data() + space.size();
}

// The first advance() posts all pieces, the next completes them.
bool posted_and_tested(MessageExecution& execution) { return !execution.advance() && execution.advance(); }

}  // namespace

// With more chunks than a schedule that may use messages passes through Staging.
TEST(an_all_to_all_of_devices_has_no_messages) {
  const Algorithm& staged = *find_algorithm(Collective::AllToAll, "staged");
  for (const auto& [size, count] : {std::pair(2, 1100000), std::pair(3, 300000), std::pair(8, 24000)}) {
    const CollectiveSpec spec{Collective::AllToAll, 0, size, 0, static_cast<std::uint64_t>(count),
                              DataType::Float32};
    Tuning tuning{.staging_bytes = 2048};
    CHECK(unit::build(staged, spec, tuning).schedules[0]->messages);
    tuning.no_messages = true;
    const unit::Group group = unit::build(staged, spec, tuning);
    unit::expect_right(group);
    CHECK(!group.schedules[0]->messages);
  }
}

TEST(schedules_of_large_counts_cover_all_bytes_in_messages_that_mpi_can_carry) {
  constexpr std::uint64_t count = (std::uint64_t{1} << 33) + 5;
  const AddressSpace space(std::size_t{1} << 45), scratch(std::size_t{1} << 45);
  // The fewest and longest messages of any tuning.
  const Tuning one_piece{.chunk_bytes = std::size_t{1} << 50, .max_lanes = 1};
  for (const Algorithm& a : algorithms()) {
    if (a.native() || a.shared || a.collective == Collective::Barrier) continue;
    for (const Tuning& tuning : {Tuning{}, one_piece})
      for (const DataType dtype : {DataType::UInt8, DataType::Complex128}) {
        const CollectiveSpec spec{.collective = a.collective, .size = 3, .count = count, .dtype = dtype};
        const unit::Group group = unit::build(a, spec, tuning);
        unit::expect_right(group);
        std::vector<Recorder> ranks;
        for (int r = 0; r < 3; ++r) {
          Recorder& recorder = ranks.emplace_back(r, 3);
          const Schedule& schedule = *group.schedules[r];
          const Binding binding{
              .input = space.data(), .output = space.data(), .scratch = scratch.data(), .dtype = dtype};
          std::uint64_t expected_sent = 0;
          std::vector<const void*> sources;
          for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane)
            for (std::uint32_t k = 0; k < schedule.lanes[lane].round_count; ++k) {
              const Round& round = schedule.rounds[schedule.lanes[lane].first_round + k];
              RoundMessages messages;
              messages.post(schedule, round, static_cast<int>(lane), binding, recorder);
              CHECK(messages.test(recorder));
              for (std::uint32_t s = 0; s < round.step_count; ++s) {
                const Step& step = schedule.steps[round.first_step + s];
                if (step.kind == StepKind::Send) expected_sent += schedule.source(step).count;
                if (step.kind != StepKind::Copy && step.kind != StepKind::Reduce) continue;
                const LocalStep local = resolve(schedule, step, binding, sources);
                CHECK(local.args.count == step.dst.count);
                CHECK(local.bytes == step.dst.count * item_size(dtype));
                const auto* dst = static_cast<const std::byte*>(local.args.dst);
                CHECK(inside(dst, local.bytes, space) || inside(dst, local.bytes, scratch));
              }
            }
          std::uint64_t bytes = 0;
          for (const Message& m : recorder.sent) {
            bytes += m.bytes;
            CHECK(inside(m.data, m.bytes, space) || inside(m.data, m.bytes, scratch));
          }
          CHECK(bytes == expected_sent * item_size(dtype));
        }
        std::uint64_t total = 0;
        for (int to = 0; to < 3; ++to)
          for (int from = 0; from < 3; ++from) {
            Lengths sent, received;
            for (const auto& [key, value] : lengths(ranks[from].sent))
              if (key.first == to) sent[{0, key.second}] = value;
            for (const auto& [key, value] : lengths(ranks[to].received))
              if (key.first == from) received[{0, key.second}] = value;
            CHECK(sent == received);
            for (const auto& [key, value] : sent)
              for (const std::size_t bytes : value) total += bytes;
          }
        // In any collective at least one rank's data travels to the two others.
        CHECK(total >= count * item_size(dtype));
      }
  }
}

TEST(messages_beyond_4_gib_are_cut_alike_on_both_sides) {
  const AddressSpace space(std::size_t{1} << 40);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kMaxMessageBytes, kMaxMessageBytes + 1,
                                  (std::size_t{1} << 31) + 5, (std::size_t{1} << 33) + 5}) {
    Recorder sender(0), receiver(1);
    MessageExecution send({.send = true, .data = space.data(), .bytes = bytes, .peer = 1, .tag = 7}, sender);
    MessageExecution recv({.send = false, .data = space.data(), .bytes = bytes, .peer = 0, .tag = 7},
                          receiver);
    CHECK(posted_and_tested(send) && posted_and_tested(recv));
    CHECK(recv.source() == 0);
    const std::byte* next = space.data();
    CHECK(sender.sent.size() == receiver.received.size() && !sender.sent.empty());
    for (std::size_t i = 0; i < sender.sent.size(); ++i) {
      CHECK(sender.sent[i].data == next && receiver.received[i].data == next);
      CHECK(sender.sent[i].bytes == receiver.received[i].bytes);
      next += sender.sent[i].bytes;
    }
    CHECK(next == space.data() + bytes);
  }
}

TEST(a_receive_from_any_source_is_one_message) {
  const AddressSpace space(std::size_t{1} << 40);
  Recorder receiver;
  const MessageCall largest{
      .send = false, .data = space.data(), .bytes = kMaxMessageBytes, .peer = kAnySource};
  MessageExecution recv(largest, receiver);
  CHECK(posted_and_tested(recv) && receiver.received.size() == 1);
  MessageCall larger = largest;
  larger.bytes += 1;
  const std::string group = "test";
  CHECK_THROWS(check({Call(larger)}, "recv", {group, 0, 2, 1}), Error, "at most 1073741824 bytes");
}

UNIT_MAIN()
