// csrc/device/cuda/flag_kernels.cu, from its PTX.
#include "device/resolved.hpp"
#include "launch_kernel.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using namespace unit;
using fakecuda::Launch;

namespace {

// `name_and_types`: mangled.
const fakecuda::Kernel& flag_kernel(const std::string& name_and_types) {
  const std::string mangled = "_ZN7mpi_gdr3gpu5flags" + name_and_types;
  const fakecuda::Kernel* const kernel = fakecuda::find_kernel(mangled);
  if (!kernel) throw std::runtime_error("no " + mangled);
  return *kernel;
}

template <typename... Arguments>
Launch launch(const char* name, Arguments... arguments) {
  return Launch(flag_kernel(name), 1, 1, parameters(arguments...), whole_gpu());
}
template <typename... Arguments>
void run(const char* name, Arguments... arguments) {
  run_kernel(flag_kernel(name), 1, 1, 0, arguments...);
}

bool waits(Launch& launch) {
  for (int i = 0; i < 100; ++i)
    if (launch.step() != Launch::State::Waiting) return false;
  return true;
}

using Word = std::uint64_t;

constexpr const char* kCount = "19count_replay_kernelEPm";
constexpr const char* kWait = "11wait_kernelEPVKmmPKmPmS3_";
constexpr const char* kWrite = "12write_kernelEPVmmPKmS5_";
Word* const kNone = nullptr;  // of Replays

}  // namespace

TEST(names_of_internal_linkage_are_found_but_for_the_hashes) {
  // A kernel of the GPU probe (tools/gpu_probe).
  const std::string end = "4fillEPjmj";
  const fakecuda::Kernel* const fill =
      fakecuda::find_kernel("_ZN36_GLOBAL__N__00000000_8_peers_cu_main" + end);
  CHECK(fill && fill->name.ends_with(end));
  CHECK(!fakecuda::find_kernel("_ZN36_GLOBAL__N__00000000_8_peers_cc_main" + end));
  CHECK(!fakecuda::find_kernel("_ZN36_GLOBAL__N__00000000_8_peers_cu_mainx" + end));
  CHECK(!fakecuda::find_kernel("_ZN36_GLOBAL__N__0000000"));
  CHECK(!fakecuda::find_kernel("") && !fakecuda::find_kernel("main"));
  for (const fakecuda::Kernel& kernel : fakecuda::all_kernels())
    CHECK(fakecuda::find_kernel(kernel.name)->body == kernel.body);
}

TEST(kernels_wait_for_a_flag_and_write_one) {
  // Values increase and wrap around.
  for (const Word at_least : {Word{1}, Word{7}, Word{1} << 63, Word{0}}) {
    Word word = at_least - 1;
    Launch waiting = launch(kWait, &word, at_least, kNone, kNone, kNone);
    CHECK(waits(waiting));
    word = at_least - 5;
    CHECK(waits(waiting));
    run(kWrite, &word, at_least + 2, kNone, kNone);
    CHECK(word == at_least + 2);
    finish(waiting);
  }
}

TEST(a_flag_that_another_thread_raises) {
  alignas(8) Word word = 0;
  Launch waiting = launch(kWait, &word, Word{3}, kNone, kNone, kNone);
  CHECK(waits(waiting));
  std::thread host([&] { __atomic_store_n(&word, 3, __ATOMIC_RELEASE); });
  finish(waiting);
  host.join();
}

TEST(replays_are_counted_by_the_device) {
  Word count = 4, poisoned = 0, released = 0, word = 0;
  run(kCount, &count);
  CHECK(count == 5);
  Launch waiting = launch(kWait, &word, 7 - (Word{1} << 32), &count, &poisoned, &released);
  word = Word{4} << 32 | 6;
  CHECK(waits(waiting));
  word = Word{4} << 32 | 7;
  finish(waiting);
  CHECK(poisoned == 0);
  run(kWrite, &word, Word{9}, &count, &poisoned);
  CHECK(word == (Word{5} << 32 | 9));
}

TEST(a_wait_that_was_released_poisons_what_follows) {
  Word count = 1, poisoned = 0, released = 0, word = 0;
  Launch waiting = launch(kWait, &word, Word{1}, &count, &poisoned, &released);
  CHECK(waits(waiting));
  released = 1;
  finish(waiting);
  CHECK(poisoned == 1);
  run(kWrite, &word, Word{9}, &count, &poisoned);
  CHECK(word == 0);
}

TEST(addresses_are_resolved_as_by_the_host) {
  std::mt19937 random(8);
  for (const int ranks : {1, 2, 3, kMostResolved}) {
    constexpr int kSegments = 3;
    constexpr std::uint32_t kCall = 7;
    std::vector<std::uint64_t> bases, shown, given_up(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks * kSegments; ++i) bases.push_back(random() % 4 ? random() * 16 + 16 : 0);
    for (int i = 0; i < 2 * ranks; ++i)
      shown.push_back(
          random() % 4 ? shown_word(random() % 4 ? kCall : kCall + 1, random() % kSegments, random()) : 0);
    for (const bool others_gave_up : {false, true}) {
      if (others_gave_up) given_up.back() = 1;
      std::vector<std::uint64_t> table(static_cast<std::size_t>(2 * ranks), 99);
      ResolveArgs args;
      args.table = table.data();
      args.ranks = ranks;
      for (int i = 0; i < 2 * ranks; ++i)
        args.shown[static_cast<std::size_t>(i)] =
            reinterpret_cast<const Flag*>(&shown[static_cast<std::size_t>(i)]);
      for (int r = 0; r < ranks; ++r)
        args.given_up[static_cast<std::size_t>(r)] =
            reinterpret_cast<const Flag*>(&given_up[static_cast<std::size_t>(r)]);
      args.stamp = shown_stamp(kCall);
      args.bases = bases.data();
      args.segments = kSegments;
      std::vector<std::byte> bytes(sizeof args);
      std::memcpy(bytes.data(), &args, sizeof args);
      Launch resolving(flag_kernel("14resolve_kernelENS_11ResolveArgsE"), 1, 2 * kMostResolved, bytes,
                       whole_gpu());
      finish(resolving);
      for (int i = 0; i < 2 * ranks; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool given = given_up[at % static_cast<std::size_t>(ranks)] || given_up[0];
        CHECK(table[at] == (given ? 0 : args.address(i, shown[at], bases.data())));
      }
    }
  }
}

UNIT_MAIN()
