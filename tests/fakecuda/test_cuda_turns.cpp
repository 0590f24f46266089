// Kernels of processes that share a device and take turns.
#include "cuda_calls.hpp"
#include "cudart/host_work.hpp"
#include "peer_rank.hpp"

using namespace fakecuda_test;

namespace {

// Flags by kernels, and more queues than the test has streams.
void allow_polling(const char* slice_us, const char* devices = "1") {
  ::setenv("FAKECUDA_STREAM_WORDS", "0", 1);
  ::setenv("FAKECUDA_QUEUES", "32", 1);
  ::setenv("FAKECUDA_SLICE_US", slice_us, 1);
  ::setenv("FAKECUDA_DEVICES", devices, 1);
}

struct Polling {
  explicit Polling(Device& device) : queue(device.make_queue()), beside(device.make_queue()) {
    flags = device.make_flags(2);
    queue->wait_flag(&flags[0], 1);
  }
  // Its kernels, including the polling one, then hold the device.
  void get_a_turn(int device = 0) {
    while (fakecuda::kernels_under_way(device) == 0) std::this_thread::yield();
    beside->write_flag(&flags[1], 1);
    beside->synchronize();
  }
  std::shared_ptr<Flag[]> flags;
  const std::unique_ptr<DeviceQueue> queue, beside;
};

constexpr const char* kLong = "100000000";

}  // namespace

TEST(a_kernel_that_polls_keeps_the_others_out_until_its_process_is_killed) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    allow_polling(kLong);
    Polling polling(load_device(0));
    polling.get_a_turn();
    static_cast<void>(!::write(ends[1], "x", 1));
    ::pause();
  }
  char begun;
  CHECK(::read(ends[0], &begun, 1) == 1);
  run([child] {
    allow_polling(kLong);
    Device& device = load_device(0);
    const auto flags = device.make_flags(1);
    const auto queue = device.make_queue();
    queue->write_flag(&flags[0], 1);
    settle();
    CHECK(flags[0].load() == 0);
    ::kill(child, SIGKILL);
    queue->synchronize();
    CHECK(flags[0].load() == 1);
  });
  CHECK(::waitpid(child, nullptr, 0) == child);
}

TEST(turns_end_with_the_slice_and_with_the_last_kernel) {
  for (const char* const slice_us : {"1000", kLong})
    run_processes<int>(2, std::chrono::seconds(50), [&](int rank, Common<int>& common) {
      allow_polling(slice_us);
      Device& device = load_device(0);
      const bool is_short = slice_us != kLong;
      if (rank == 0) {
        Polling polling(device);
        polling.get_a_turn();
        if (!is_short) polling.flags[0].store(1);
        if (!is_short) polling.queue->synchronize();
        common.meet(2);
        common.meet(2);
        polling.flags[0].store(1);
        polling.queue->synchronize();
      } else {
        common.meet(2);
        Polling polling(device);
        polling.get_a_turn();
        polling.flags[0].store(1);
        polling.queue->synchronize();
        common.meet(2);
      }
    });
}

TEST(devices_do_not_wait_for_each_other) {
  run_processes<int>(2, std::chrono::seconds(50), [](int rank, Common<int>& common) {
    allow_polling(kLong, "2");
    Polling polling(load_device(rank));
    polling.get_a_turn(rank);
    common.meet(2);
    polling.flags[0].store(1);
    polling.queue->synchronize();
  });
}

UNIT_MAIN()
