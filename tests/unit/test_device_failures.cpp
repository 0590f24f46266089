// Failing operations on device memory, through Group and Engine: nothing hangs, and waiters get the reason.
#include <sys/mman.h>
#include <sys/wait.h>

#include "device_world.hpp"
#include "job/device_failure.hpp"

using namespace engine_tests;

// The first test, because its child must not inherit other tests' devices.
TEST(a_process_ends_only_after_its_device_has_drained) {
  constexpr std::size_t kCopies = 10, kCount = 1 << 18;
  auto& marker = *static_cast<std::atomic<float>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    World world(2);
    Gpu& gpu = *new Gpu(3, 1);
    std::vector<float>&from = unfreed(kCount, 1), &to = unfreed(kCount, 0);
    Reduction reduction(world, 0, gpu, 1000, 1, true, 300ms, [&] {  // with work that takes a while
      for (std::size_t i = 0; i < kCopies; ++i)
        gpu.queues[0]->copy(to.data(), from.data(), kCount * sizeof(float));
      gpu.queues[0]->copy(&marker, from.data(), sizeof(float));
    });
    const OperationPtr operation = reduction.operation;
    operation->on_finished([operation] { device_operation_failed(operation); });
    std::this_thread::sleep_for(50s);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 123);
  CHECK(marker == 1);
}

TEST(a_peer_that_never_comes_is_a_timeout_and_the_device_goes_on) {
  World world(2);
  const auto gpus = make_gpus(2);
  Gpu& gpu = *gpus[0];
  Reduction reduction(world, 0, gpu, 1000, 1, true, 300ms), behind(world, 0, gpu, 1000, 1, true, 300ms);
  float& received = unfreed(1, 0)[0];
  CHECK_THROWS(world.wait(0, reduction.operation), Error, "still waiting for rank 1");
  gpu.caller->synchronize();  // does not hang
  gpu.device.synchronize();
  CHECK_THROWS(world.wait(0, behind.operation), Error, "the group failed earlier");
  CHECK_THROWS(Reduction(world, 0, gpu, 10, 1), Error, "timed out");
  CHECK_THROWS(GatedMessage(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller), Error, "timed out");
  gpu.device.synchronize();
  world.close();
}

TEST(a_message_that_never_comes_is_a_timeout_and_the_device_goes_on) {
  World world(2, {.group = {"test", 300ms, 32}});
  Gpu& gpu = *make_gpus(1)[0];
  float& received = unfreed(1, 0)[0];
  GatedMessage message(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller);
  GatedMessage next(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller);
  message.gate->wait(*gpu.caller);
  next.gate->wait(*gpu.side);
  gpu.device.synchronize();
  CHECK(message.operation->finished() && message.operation->error());
  CHECK_THROWS(world.wait(0, message.operation), Error, "still waiting for rank 1");
  world.close();
}

TEST(an_abort_unblocks_the_device) {
  World world(2);
  Gpu& gpu = *make_gpus(1)[0];
  std::vector<std::unique_ptr<Reduction>> reductions;
  for (int i = 0; i < 40; ++i) reductions.push_back(std::make_unique<Reduction>(world, 0, gpu, 1000, 1));
  std::thread aborter([&] {
    std::this_thread::sleep_for(20ms);
    world.ranks[0].engine->abort(*world.ranks[0].group, "the user has had enough");
  });
  gpu.caller->synchronize();
  aborter.join();
  for (auto& reduction : reductions)
    CHECK_THROWS(world.wait(0, reduction->operation), Error, "the user has had enough");
  gpu.device.synchronize();
  world.close();
}

// The root of a broadcast waits for no rank. Its completed operation stays valid when the group fails later.
TEST(what_ended_before_a_failure_ends_well_on_the_other_ranks) {
  World world(2);
  const auto gpus = make_gpus(2);
  share_staging(world, gpus);
  const auto broadcast = [&](int r, std::vector<float>& data) {
    CollectiveCall call = all_reduce(world, r, data);
    call.spec.collective = Collective::Broadcast;
    const StreamTarget target = gpus[r]->target(true);
    IssueOptions options{{.name = "broadcast"}, Channel::Accelerator};
    options.stream = &target;
    return world.ranks[r].group->issue({call}, std::move(options));
  };
  std::vector<float>&sent = unfreed(1000, 3), &unsent = unfreed(1000, 4);
  Engine& root = *world.ranks[0].engine;
  root.wait(*broadcast(0, sent));
  root.abort(*world.ranks[0].group, "enough");
  std::vector<float>&got = unfreed(1000, 0), &none = unfreed(1000, 0);
  world.wait(1, broadcast(1, got));
  CHECK(got == sent);
  CHECK_THROWS(broadcast(0, unsent), Error, "enough");
  const OperationPtr second = broadcast(1, none);
  world.ranks[1].engine->abort(*world.ranks[1].group, "enough as well");
  CHECK_THROWS(world.wait(1, second), Error, "enough as well");
  gpus[1]->device.synchronize();
}

namespace {

// Rank 0's device accepts only this many submissions of an all_reduce. False: it needed no more.
bool refuses(int submissions, bool shared) {
  World world(2);
  const auto gpus = make_gpus(2);
  if (shared) share_staging(world, gpus);
  std::atomic<bool> refused{false};
  std::barrier issued(2);
  world.run_and_close([&](int r) {
    Gpu& gpu = *gpus[r];
    Engine& engine = *world.ranks[r].engine;
    std::vector<float>& data = unfreed(20'000, 1);
    const StreamTarget target = gpu.target(true);
    IssueOptions options{{.name = "all_reduce"}, Channel::Accelerator};
    // Missing messages carry no reason.
    if (!shared && r == 1) options.timeout = 200ms;
    options.stream = &target;
    OperationPtr operation;
    if (r == 0) gpu.device.refuse_after(submissions);
    try {
      operation = world.ranks[r].group->issue({all_reduce(world, r, data)}, std::move(options));
      // As the binding does for errors that it has reported.
      operation->on_finished([operation] {
        if (operation->error()) unblock_device(operation);
      });
    } catch (const Error& e) {
      CHECK(r == 0 && e.code() == ErrorCode::System);
      CHECK(std::strstr(e.what(), "the device refused its part: cu"));
      CHECK_THROWS(Reduction(world, 0, gpu, 1000, 1), Error, "the group failed earlier: all_reduce");
      refused = true;
    }
    gpu.device.refuse_after(-1);
    issued.arrive_and_wait();
    const auto began = std::chrono::steady_clock::now();
    if (r == 0 && !refused) {
      engine.wait(*operation);
    } else if (r == 1) {
      try {
        engine.wait(*operation);
        CHECK(!refused || !shared);  // rank 0 may have done its part of the messages
      } catch (const Error& e) {
        CHECK(refused && e.code() == (shared ? ErrorCode::Remote : ErrorCode::Timeout));
        CHECK(!shared || std::strstr(e.what(), "rank 0 could not launch its part"));
        CHECK(std::chrono::steady_clock::now() - began < 10s);  // long before its deadline
      }
    }
    gpu.device.synchronize();
    CHECK(refused || data == std::vector<float>(20'000, 2));
  });
  return refused;
}

}  // namespace

TEST(a_device_that_refuses_its_part_fails_the_group_and_goes_on) {
  for (const bool shared : {false, true}) {
    int submissions = 0;
    while (refuses(submissions, shared)) ++submissions;
    CHECK(submissions > 8);
  }
}

TEST(work_before_a_refused_submission_is_unblocked_until_it_is_through) {
  World world(2);
  const auto gpus = make_gpus(2);
  const auto nodes = share_staging(world, gpus);
  Gpu& gpu = *gpus[0];
  Flag late{0};
  gpu.caller->wait_flag(&late, 1);
  const auto conclude = [] { fail(ErrorCode::System, "the device has had enough"); };
  CHECK_THROWS(Reduction(world, 0, gpu, 1000, 1, true, {}, conclude), Error, "has had enough");
  while (world.ranks[0].group->outstanding() > 0) std::this_thread::yield();
  // The peer's slow device overwrites the notice that the host of rank 0 has set for its own device.
  nodes[0]->notices(0, 0, 1).store(std::uint64_t{1} << 32, std::memory_order_release);
  late.store(1);
  gpu.device.synchronize();  // a flag that is never reached ends the process
  world.close();
}

TEST(a_device_that_makes_no_more_flags_fails_the_group) {
  World world(2);
  const auto gpus = make_gpus(2);
  share_staging(world, gpus);
  Gpu& gpu = *gpus[0];
  gpu.flags = std::make_shared<StreamFlagPool>(gpu.device, 1);
  gpu.flags->acquire(1);
  Reduction others(world, 1, *gpus[1], 1000, 1);
  gpu.device.out_of_flags = true;
  CHECK_THROWS(Reduction(world, 0, gpu, 1000, 1), Error, "all_reduce: no more flags");
  // Rank 1 runs it: the next operation must not be matched with it.
  gpu.device.out_of_flags = false;
  CHECK_THROWS(Reduction(world, 0, gpu, 1000, 1), Error, "the group failed earlier: all_reduce: no more");
  CHECK(world.ranks[0].group->failure_code() == ErrorCode::System);
  CHECK_THROWS(world.wait(1, others.operation), Error, "rank 0 could not launch its part");
  gpus[1]->device.synchronize();
  world.close();
}

TEST(a_shutdown_unblocks_the_device) {
  World world(2);
  Gpu& gpu = *make_gpus(1)[0];
  Reduction reduction(world, 0, gpu, 1000, 1);
  float& received = unfreed(1, 0)[0];
  GatedMessage message(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.side);
  message.gate->wait(*gpu.side);
  CHECK(!world.ranks[0].engine->shutdown());
  gpu.device.synchronize();
  CHECK(reduction.operation->error() && message.operation->error());
}

UNIT_MAIN_THAT_LEAKS()
