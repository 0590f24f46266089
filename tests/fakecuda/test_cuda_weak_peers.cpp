// Tests that detect mutants of the software CUDA (gpu/mutant.hpp); tests/gpu/test_cuda_mutants.py runs them.
// Without a mutant all pass. Memory is weak, and all work is submitted before any of it begins. In most tests
// one rank or some hardware queues of each rank run late.
#include "carried_calls.hpp"
#include "flag_messages.hpp"
#include "program_parts.hpp"

using namespace fakecuda_test;

namespace {

std::chrono::seconds limit() {
  const char* const given = std::getenv("MUTANT_SECONDS");
  return std::chrono::seconds(given ? std::atoi(given) : 50);
}

void set_up(const char* stream_words, int rank, const char* late) {
  ::setenv("FAKECUDA_STREAM_WORDS", stream_words, 1);
  ::setenv("FAKECUDA_MEMORY", "weak", 0);
  ::setenv("FAKECUDA_DEPTH", "1000000", 1);
  ::setenv("FAKECUDA_SEED", std::to_string(rank + 1).c_str(), 1);
  ::setenv("FAKECUDA_DELAY_US", rank == 1 || late ? "200" : "0", 1);
  if (late) ::setenv("FAKECUDA_LATE", late, 1);
}

void run_peers(const char* stream_words, const std::function<void(PeerRank&, Hold&)>& body) {
  constexpr int kSize = 2;
  run_processes<SharedAreas>(kSize, limit(), [&](int rank, World& world) {
    set_up(stream_words, rank, nullptr);
    PeerRank self(rank, kSize, world);
    Hold hold(self.device);
    body(self, hold);
    self.close();
  });
}

void run_all_calls(const char* stream_words, Grouping grouped) {
  run_peers(stream_words, [&](PeerRank& self, Hold& hold) {
    run_calls(self, all_calls(self.size, {7, 600}), grouped, &hold);
  });
}

// In a broadcast the root receives nothing: only SlotUse::begin() keeps the root from overwriting a slot that
// a peer still reads.
void broadcast_often(PeerRank& self, Hold& hold) {
  std::vector<Call> calls;
  for (const Algorithm& algorithm : algorithms())
    for (int k = 0; runs_on_devices(algorithm) && algorithm.collective == Collective::Broadcast && k < 12;
         ++k)
      calls.push_back({&algorithm, self.size, 100, DataType::Int32, ReduceOp::Sum, k * self.size});
  run_calls(self, calls, none, &hold);
}

// `late`: FAKECUDA_LATE, a mask of hardware queues, in decimal.
void run_carried(const char* stream_words, bool by_host, const char* late) {
  run_processes<int>(1, limit(), [&](int, Common<int>&) {
    constexpr int kSize = 2;
    set_up(stream_words, 0, late);
    Device& device = load_device(0);
    auto transports = make_loopback(kSize, {.eager_bytes = 64, .max_late_tests = 2});
    std::vector<std::unique_ptr<CarriedRank>> ranks;
    for (auto& transport : transports)
      ranks.push_back(std::make_unique<CarriedRank>(device, std::move(transport)));
    unit::on_threads(kSize, [&](int r) {
      Hold hold(device);
      carry_everything(*ranks[static_cast<std::size_t>(r)], kSize, hold, by_host);
    });
  });
}

void run_flags(const char* stream_words) {
  run_processes<int>(1, limit(), [&](int, Common<int>&) {
    set_up(stream_words, 0, nullptr);
    FlagMessages(load_device(0)).all();
  });
}

void run_parts(const char* late) {
  run_processes<int>(1, limit(), [&](int, Common<int>&) {
    set_up("1", 0, late);
    ProgramParts parts(load_device(0));
    parts.all_kinds_of_order();
    parts.early_end();
  });
}

}  // namespace

TEST(peers_by_memory_operations) { run_all_calls("1", none); }

TEST(peers_by_kernels) { run_all_calls("0", none); }

TEST(group_memory_by_memory_operations) { run_all_calls("1", everything); }

TEST(group_memory_by_kernels) { run_all_calls("0", everything); }

TEST(broadcasts_in_a_row) { run_peers("1", broadcast_often); }

TEST(graphs) {
  run_peers("1", [](PeerRank& self, Hold& hold) { replay_everything(self, 4, &hold); });
}

// Masks of hardware queues. Bit 0 is the legacy stream's queue. Then each rank has three bits: the caller's
// queue and two queues for lanes.
constexpr const char *kAll = "126", *kFirstLanes = "36", *kSecondLanes = "72";

TEST(carried_from_the_device) { run_carried("1", false, kSecondLanes); }

TEST(carried_through_the_host) { run_carried("1", true, kFirstLanes); }

TEST(carried_by_kernels) { run_carried("0", true, kAll); }

TEST(parts_of_which_the_first_queue_is_late) { run_parts("4"); }

TEST(parts_of_which_the_other_queue_is_late) { run_parts("8"); }

TEST(flags_by_memory_operations) { run_flags("1"); }

TEST(flags_by_kernels) { run_flags("0"); }

int main(int argc, char** argv) { return unit::run(argc, argv, 600); }
