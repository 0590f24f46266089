// Collectives and messages on the memory of a device, through Group and Engine: who waits for whom, what is
// given back, and that nothing hangs when something goes wrong.
#include <barrier>

#include "device/sim/sim_device.hpp"
#include "engine/gate.hpp"
#include "engine/stream_target.hpp"
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

// Does as it is told: order() throws once it has been called so often.
class FickleDevice : public SimDevice {
 public:
  using SimDevice::SimDevice;
  void order(DeviceQueue& before, DeviceQueue& after) override {
    if (orders_left-- == 0) fail(ErrorCode::System, "the device has had enough");
    SimDevice::order(before, after);
  }
  void enter_thread() override { entered.push_back(std::this_thread::get_id()); }
  std::atomic<int> orders_left{-1};      // never
  std::vector<std::thread::id> entered;  // by one thread
};

// What a rank has of its device. Leaked: operations that were given up keep what is on it.
struct Gpu {
  // More flags than any test has operations in flight: to make others waits for the device.
  explicit Gpu(int hardware_queues, std::uint64_t seed, std::size_t flag_blocks = 64)
      : device(SimOptions{.hardware_queues = hardware_queues,
                          .max_delay = std::chrono::microseconds(30),
                          .seed = seed,
                          .deadline = 20s}),
        caller(device.make_queue()),
        side(device.make_queue()) {
    for (int q = 0; q < 2; ++q) owned.push_back(device.make_queue());
    for (const auto& queue : owned) queues.push_back(queue.get());
    flags = std::make_shared<StreamFlagPool>(device, flag_blocks);
  }
  static std::shared_ptr<void> memory(std::size_t bytes) {
    return {std::malloc(bytes ? bytes : 1), [](void* block) { std::free(block); }};
  }
  StreamTarget target(bool through_host) {
    StreamTarget target{device, queues, *caller, flags};
    target.through_host = through_host;
    target.device_memory = target.host_memory = memory;
    return target;
  }

  FickleDevice device;
  std::unique_ptr<DeviceQueue> caller, side;
  std::vector<std::unique_ptr<DeviceQueue>> owned;
  std::vector<DeviceQueue*> queues;
  std::shared_ptr<StreamFlagPool> flags;
};

std::vector<Gpu*> make_gpus(int size, int hardware_queues = 3) {
  std::vector<Gpu*> gpus;
  for (int r = 0; r < size; ++r) gpus.push_back(new Gpu(hardware_queues, static_cast<std::uint64_t>(r) + 1));
  return gpus;
}

std::vector<float>& unfreed(std::size_t count, float value) { return *new std::vector<float>(count, value); }

// An all_reduce of what the caller's queue writes just before, whose result it copies right after.
struct Reduction {
  Reduction(World& world, int r, Gpu& gpu, std::size_t count, float value, bool through_host = true,
            std::optional<std::chrono::nanoseconds> timeout = {}, std::function<void()> conclude = nullptr)
      : source(unfreed(count, value)), data(unfreed(count, -1)), result(unfreed(count, -2)) {
    gpu.caller->copy(data.data(), source.data(), count * sizeof(float));
    IssueOptions options{.name = "all_reduce", .channel = Channel::Accelerator, .timeout = timeout};
    StreamTarget target = gpu.target(through_host);
    target.conclude = std::move(conclude);
    options.stream = &target;
    operation = world.ranks[r].group->issue({all_reduce(world, r, data)}, options);
    gpu.device.order(*gpu.queues[0], *gpu.caller);
    gpu.caller->copy(result.data(), data.data(), count * sizeof(float));
    gpu.caller->copy(data.data(), source.data(), count * sizeof(float));
  }
  bool is(float value) const { return result == std::vector<float>(result.size(), value); }

  std::vector<float>&source, &data, &result;
  OperationPtr operation;
};

// A message as the binding makes it: begins when `queue` has come to it, and `await()` comes behind it.
struct GatedMessage {
  GatedMessage(World& world, int r, Gpu& gpu, MessageCall call, DeviceQueue& queue)
      : gate(std::make_shared<Gate>(gpu.flags)) {
    gate->enter(queue);
    operation = world.ranks[r].group->issue({call}, {.name = call.send ? "send" : "recv", .gate = gate});
  }
  std::shared_ptr<Gate> gate;
  OperationPtr operation;
};

}  // namespace

TEST(the_progress_thread_enters_a_device_whose_memory_the_transport_gets) {
  World world(2);
  const auto gpus = make_gpus(2);
  for (int turn = 0; turn < 3; ++turn)
    world.run([&](int r) {
      if (turn) world.ranks[r].engine->serve(gpus[r]->device);
      Reduction reduction(world, r, *gpus[r], 1000, 1, false);
      while (!reduction.operation->finished()) std::this_thread::yield();
      CHECK(gpus[r]->device.entered.size() == (turn ? 1u : 0u));
      if (turn) CHECK(gpus[r]->device.entered[0] != std::this_thread::get_id());
      gpus[r]->caller->synchronize();
    });
}

TEST(streams_that_wait_for_a_message_are_known) {
  Gpu& gpu = *new Gpu(2, 1);
  CHECK(!Gate::any_holds_a_stream());
  for (const bool early : {true, false}) {
    Gate gate(gpu.flags);
    gate.enter(*gpu.caller);
    if (early) gate.open();
    gate.await(*gpu.caller);
    gate.await(*gpu.side);
    CHECK(Gate::any_holds_a_stream() == !early);
    gate.open();
    CHECK(!Gate::any_holds_a_stream());
    gpu.caller->synchronize();
  }
}

TEST(results_are_in_the_order_of_the_callers_queue) {
  for (const int size : {1, 2, 3, 4})
    for (const bool through_host : {true, false})
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{200'000}}) {
        World world(size);
        const auto gpus = make_gpus(size, count == 1000 ? 1 : 3);
        world.run([&](int r) {
          std::vector<std::unique_ptr<Reduction>> reductions;
          for (int i = 0; i < 6; ++i)
            reductions.push_back(std::make_unique<Reduction>(world, r, *gpus[r], count,
                                                             static_cast<float>(r + i), through_host));
          gpus[r]->caller->synchronize();
          for (int i = 0; i < 6; ++i)
            CHECK(reductions[i]->is(static_cast<float>(size * i + size * (size - 1) / 2)));
          for (auto& reduction : reductions) world.ranks[r].engine->wait(*reduction->operation);
        });
        world.close();
      }
}

TEST(flags_serve_one_operation_after_the_other) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run([&](int r) {
    for (int i = 0; i < 100; ++i) {
      Reduction reduction(world, r, *gpus[r], 100, 1);
      world.ranks[r].engine->wait(*reduction.operation);
      reduction.operation.reset();
      float byte = 0;
      GatedMessage message(world, r, *gpus[r], {r == 0, &byte, 4, 1 - r, 0}, *gpus[r]->caller);
      world.ranks[r].engine->wait(*message.operation);
    }
  });
  for (Gpu* gpu : gpus) CHECK(gpu->flags->blocks() == 64);
  world.close();
}

TEST(a_thread_that_waits_for_the_device_may_shut_out_the_issuer) {
  World world(2);
  const auto gpus = make_gpus(2, 4);
  std::atomic<bool> ended{false};
  std::vector<std::thread> disturbers;
  for (Gpu* gpu : gpus)
    disturbers.emplace_back([&ended, gpu] {
      while (!ended) gpu->device.synchronize_all();
    });
  world.run([&](int r) {
    for (int i = 0; i < 150; ++i) {
      Reduction reduction(world, r, *gpus[r], 500, 1);
      gpus[r]->caller->synchronize();
      CHECK(reduction.is(2));
    }
  });
  ended = true;
  for (auto& disturber : disturbers) disturber.join();
  world.close();
}

TEST(messages_begin_with_their_queue_and_end_before_what_awaits_them) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run([&](int r) {
    Gpu& gpu = *gpus[r];
    for (int i = 0; i < 50; ++i) {
      float source = static_cast<float>(i), moved = -1, result = -2;
      if (r == 0) {
        gpu.caller->copy(&moved, &source, sizeof moved);
        GatedMessage message(world, 0, gpu, {true, &moved, sizeof moved, 1, 0}, *gpu.caller);
        message.gate->await(*gpu.caller);
        gpu.caller->copy(&moved, &result, sizeof moved);  // only now is it free again
        gpu.caller->synchronize();
        world.ranks[r].engine->wait(*message.operation);
      } else {
        GatedMessage message(world, 1, gpu, {false, &moved, sizeof moved, 0, 0}, *gpu.caller);
        message.gate->await(*gpu.side);
        gpu.side->copy(&result, &moved, sizeof moved);
        gpu.side->synchronize();
        CHECK(result == source);
        world.ranks[r].engine->wait(*message.operation);
      }
    }
  });
  world.close();
}

TEST(messages_are_posted_in_the_order_of_the_calls) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run([&](int r) {
    Gpu& gpu = *gpus[r];
    for (int i = 0; i < 20; ++i) {
      float data[4] = {0, 1, 2, 3}, received[4] = {-1, -1, -1, -1};
      Flag late{0};
      gpu.caller->wait_flag(&late, 1);
      std::vector<OperationPtr> operations;
      // The first of them is the last to be entered; one of the host's comes behind it.
      for (int k = 0; k < 3; ++k) {
        const MessageCall call{r == 0, r == 0 ? &data[k] : &received[k], sizeof(float),
                               r == 1 && k == 1 && i % 2 ? kAnySource : 1 - r, 7};
        DeviceQueue& queue = k == 0 ? *gpu.caller : *gpu.side;
        operations.push_back(GatedMessage(world, r, gpu, call, queue).operation);
      }
      const MessageCall last{r == 0, r == 0 ? &data[3] : &received[3], sizeof(float), 1 - r, 7};
      operations.push_back(world.ranks[r].group->issue({last}, {.name = "message"}));
      // One that the other side can tell from them waits for none of them.
      float other = 5;
      const MessageCall apart{r == 0, &other, sizeof(float), 1 - r, 8};
      world.ranks[r].engine->wait(*GatedMessage(world, r, gpu, apart, *gpu.side).operation);
      for (auto& operation : operations) CHECK(!operation->finished());
      late.store(1);
      for (auto& operation : operations) world.ranks[r].engine->wait(*operation);
      gpu.caller->synchronize();
      for (int k = 0; k < 4 && r == 1; ++k) CHECK(received[k] == data[k]);
    }
  });
  world.close();
}

TEST(a_peer_that_never_comes_is_a_timeout_and_the_device_goes_on) {
  World world(2);
  const auto gpus = make_gpus(2);
  Gpu& gpu = *gpus[0];
  Reduction reduction(world, 0, gpu, 1000, 1, true, 300ms), behind(world, 0, gpu, 1000, 1, true, 300ms);
  float& received = unfreed(1, 0)[0];
  CHECK_THROWS(world.ranks[0].engine->wait(*reduction.operation), Error, "still waiting for rank 1");
  gpu.caller->synchronize();  // does not hang
  gpu.device.synchronize_all();
  CHECK_THROWS(world.ranks[0].engine->wait(*behind.operation), Error, "the group failed earlier");
  CHECK_THROWS(Reduction(world, 0, gpu, 10, 1), Error, "timed out");
  CHECK_THROWS(GatedMessage(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller), Error, "timed out");
  gpu.device.synchronize_all();
  gpu.device.check();
  world.close();
}

TEST(a_message_that_never_comes_is_a_timeout_and_the_device_goes_on) {
  World world(2, {.group = {"test", 300ms, 32}});
  Gpu& gpu = *make_gpus(1)[0];
  float& received = unfreed(1, 0)[0];
  GatedMessage message(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller);
  GatedMessage next(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.caller);
  message.gate->await(*gpu.caller);
  next.gate->await(*gpu.side);
  gpu.device.synchronize_all();
  CHECK(message.operation->finished() && message.operation->error());
  CHECK_THROWS(world.ranks[0].engine->wait(*message.operation), Error, "still waiting for rank 1");
  gpu.device.check();
  world.close();
}

TEST(an_abort_lets_the_device_go_on) {
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
    CHECK_THROWS(world.ranks[0].engine->wait(*reduction->operation), Error, "the user has had enough");
  gpu.device.synchronize_all();
  gpu.device.check();
  world.close();
}

TEST(a_device_that_refuses_its_part_fails_the_group_and_goes_on) {
  for (const bool at_the_end : {false, true}) {
    World world(2);
    const auto gpus = make_gpus(2);
    world.run([&](int r) {
      Gpu& gpu = *gpus[r];
      if (r == 0) {
        if (!at_the_end) gpu.device.orders_left = 0;
        const auto conclude = [&] {
          if (at_the_end) fail(ErrorCode::System, "the device has had enough");
        };
        CHECK_THROWS(Reduction(world, 0, gpu, 200'000, 1, true, {}, conclude), Error,
                     "the device refused its part: the device has had enough");
        CHECK_THROWS(Reduction(world, 0, gpu, 1000, 1), Error, "the group failed earlier: all_reduce");
      } else {
        // Rank 0 may have done its part of the messages.
        Reduction reduction(world, 1, gpu, 200'000, 1, true, 500ms);
        try {
          world.ranks[1].engine->wait(*reduction.operation);
        } catch (const Error& e) {
          CHECK(e.code() == ErrorCode::Timeout);
        }
      }
      gpu.device.synchronize_all();
      gpu.device.check();
    });
    world.close();
  }
}

TEST(a_shutdown_lets_the_device_go_on) {
  World world(2);
  Gpu& gpu = *make_gpus(1)[0];
  Reduction reduction(world, 0, gpu, 1000, 1);
  float& received = unfreed(1, 0)[0];
  GatedMessage message(world, 0, gpu, {false, &received, 4, 1, 0}, *gpu.side);
  message.gate->await(*gpu.side);
  CHECK(!world.ranks[0].engine->shutdown());
  gpu.device.synchronize_all();
  gpu.device.check();
  CHECK(reduction.operation->error() && message.operation->error());
}

TEST(a_group_records_what_it_can_replay_and_lets_replays_go_on_when_it_fails) {
  World world(2);
  const auto gpus = make_gpus(2);
  std::vector<ipc::Ticket> tickets(2);
  std::barrier meet(2);
  world.run([&](int r) {
    Gpu& gpu = *gpus[r];
    Group& group = *world.ranks[r].group;
    auto& caller = dynamic_cast<SimQueue&>(*gpu.caller);
    std::vector<float>&source = unfreed(100, 1), &data = unfreed(100, -1);
    int told = 0;
    const auto record = [&](std::vector<Call> calls) {
      StreamTarget target = gpu.target(true);
      target.conclude = [&] { gpu.device.order(*gpu.queues[0], caller); };
      group.capture(std::move(calls), "all_reduce", target, [&] {
        ++told;
        group.release_replays();
      });
    };
    caller.begin_capture();
    CHECK_THROWS(record({all_reduce(world, r, data)}), Error, "by the algorithm");
    CHECK_THROWS(record({MessageCall{r == 0, data.data(), 4, 1 - r, 0}}), Error, "messages");
    CHECK(caller.end_capture()->size() == 0);

    const auto node = std::make_shared<ipc::DeviceNode>(gpu.device, r, 2);
    tickets[static_cast<std::size_t>(r)] = node->ticket();
    meet.arrive_and_wait();
    std::string why;
    CHECK(node->attach(tickets, why));
    meet.arrive_and_wait();
    group.share_devices(node);
    caller.begin_capture();
    caller.copy(data.data(), source.data(), 400);
    record({all_reduce(world, r, data), all_reduce(world, r, data)});
    const auto graph = caller.end_capture();
    for (int i = 1; i <= 5; ++i) {
      source.assign(100, static_cast<float>(i));
      caller.replay(*graph);
      caller.synchronize();
      CHECK(data == std::vector<float>(100, static_cast<float>(4 * i)));
    }
    CHECK(group.sequence(Channel::Accelerator) == 0 && group.outstanding() == 0);

    meet.arrive_and_wait();
    if (r == 0) caller.replay(*graph);  // alone
    world.ranks[r].engine->abort(group, "enough");
    caller.synchronize();
    CHECK(told == 1);
    CHECK_THROWS(record({all_reduce(world, r, data)}), Error, "enough");
    meet.arrive_and_wait();
  });
}

TEST(flags_of_a_gate_that_nobody_entered_are_not_given_out_again) {
  Gpu& gpu = *new Gpu(2, 1, 2);
  Flag late{0};
  gpu.caller->wait_flag(&late, 1);
  {
    Gate(gpu.flags).enter(*gpu.caller);
  }  // refused: its flag is written when nobody looks
  Gate next(gpu.flags);
  next.enter(*gpu.side);
  gpu.side->synchronize();
  late.store(1);
  gpu.caller->synchronize();
  CHECK(next.entered());
  CHECK(gpu.flags->blocks() == 2);
}

// Failed operations are leaked on purpose: a peer may still write to their buffers.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() {
  return "detect_leaks=0";
}

UNIT_MAIN()
