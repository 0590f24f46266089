// Collectives and messages on device memory, through Group and Engine: ordering and release of resources.
#include "device_world.hpp"

using namespace engine_tests;

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

TEST(streams_that_wait_for_a_message_are_tracked) {
  Gpu& gpu = *new Gpu(2, 1);
  CHECK(!Gate::any_holds_a_stream());
  for (const bool early : {true, false}) {
    Gate gate(gpu.flags);
    gate.enter(*gpu.caller);
    if (early) gate.open();
    gate.wait(*gpu.caller);
    gate.wait(*gpu.side);
    CHECK(Gate::any_holds_a_stream() == !early);
    gate.open();
    CHECK(!Gate::any_holds_a_stream());
    gpu.caller->synchronize();
  }
}

TEST(results_are_in_the_order_of_the_callers_queue) {
  for (const int size : {1, 2, 3, 4}) {
    if (unit::kSanitized && size % 2 == 0) continue;
    for (const bool through_host : {true, false})
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{200'000}}) {
        World world(size);
        const auto gpus = make_gpus(size, count == 1000 ? 1 : 3);
        world.run_and_close([&](int r) {
          std::vector<std::unique_ptr<Reduction>> reductions;
          for (int i = 0; i < 6; ++i)
            reductions.push_back(std::make_unique<Reduction>(world, r, *gpus[r], count,
                                                             static_cast<float>(r + i), through_host));
          gpus[r]->caller->synchronize();
          for (int i = 0; i < 6; ++i)
            CHECK(reductions[i]->is(static_cast<float>(size * i + size * (size - 1) / 2)));
          for (auto& reduction : reductions) world.wait(r, reduction->operation);
        });
      }
  }
}

TEST(flags_serve_one_operation_after_the_other) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run([&](int r) {
    for (int i = 0; i < 100; ++i) {
      Reduction reduction(world, r, *gpus[r], 100, 1);
      world.wait(r, reduction.operation);
      reduction.operation.reset();
      float byte = 0;
      GatedMessage message(world, r, *gpus[r], {r == 0, &byte, 4, 1 - r, 0}, *gpus[r]->caller);
      world.wait(r, message.operation);
    }
  });
  for (Gpu* gpu : gpus) CHECK(gpu->flags->blocks() == 64);
  world.close();
}

TEST(a_thread_that_waits_for_the_device_may_shut_out_the_issuer) {
  World world(2);
  const auto gpus = make_gpus(2, 4);
  std::vector<std::jthread> disturbers;
  for (Gpu* gpu : gpus)
    disturbers.emplace_back([gpu](const std::stop_token& stop) {
      while (!stop.stop_requested()) gpu->device.synchronize();
    });
  world.run([&](int r) {
    for (int i = 0; i < 150; ++i) {
      Reduction reduction(world, r, *gpus[r], 500, 1);
      gpus[r]->caller->synchronize();
      CHECK(reduction.is(2));
    }
  });
  disturbers.clear();
  world.close();
}

TEST(messages_begin_with_their_queue_and_end_before_what_awaits_them) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run_and_close([&](int r) {
    Gpu& gpu = *gpus[r];
    for (int i = 0; i < 50; ++i) {
      float source = static_cast<float>(i), moved = -1, result = -2;
      if (r == 0) {
        gpu.caller->copy(&moved, &source, sizeof moved);
        GatedMessage message(world, 0, gpu, {true, &moved, sizeof moved, 1, 0}, *gpu.caller);
        message.gate->wait(*gpu.caller);
        gpu.caller->copy(&moved, &result, sizeof moved);  // only now may it be reused
        gpu.caller->synchronize();
        world.wait(r, message.operation);
      } else {
        GatedMessage message(world, 1, gpu, {false, &moved, sizeof moved, 0, 0}, *gpu.caller);
        message.gate->wait(*gpu.side);
        gpu.side->copy(&result, &moved, sizeof moved);
        gpu.side->synchronize();
        CHECK(result == source);
        world.wait(r, message.operation);
      }
    }
  });
}

TEST(messages_are_posted_in_the_order_of_the_calls) {
  World world(2);
  const auto gpus = make_gpus(2);
  world.run_and_close([&](int r) {
    Gpu& gpu = *gpus[r];
    for (int i = 0; i < 20; ++i) {
      float data[4] = {0, 1, 2, 3}, received[4] = {-1, -1, -1, -1};
      Flag late{0};
      gpu.caller->wait_flag(&late, 1);
      std::vector<OperationPtr> operations;
      // The first message enters last, and a host message follows.
      for (int k = 0; k < 3; ++k) {
        const MessageCall call{r == 0, r == 0 ? &data[k] : &received[k], sizeof(float),
                               r == 1 && k == 1 && i % 2 ? kAnySource : 1 - r, 7};
        DeviceQueue& queue = k == 0 ? *gpu.caller : *gpu.side;
        operations.push_back(GatedMessage(world, r, gpu, call, queue).operation);
      }
      const MessageCall last{r == 0, r == 0 ? &data[3] : &received[3], sizeof(float), 1 - r, 7};
      operations.push_back(world.ranks[r].group->issue({last}, {{.name = "message"}}));
      // A message with another tag waits for none of them.
      float other = 5;
      const MessageCall apart{r == 0, &other, sizeof(float), 1 - r, 8};
      world.wait(r, GatedMessage(world, r, gpu, apart, *gpu.side).operation);
      for (auto& operation : operations) CHECK(!operation->finished());
      late.store(1);
      for (auto& operation : operations) world.wait(r, operation);
      gpu.caller->synchronize();
      for (int k = 0; k < 4 && r == 1; ++k) CHECK(received[k] == data[k]);
    }
  });
}

TEST(a_failed_group_releases_its_replays) {
  World world(2);
  const auto gpus = make_gpus(2);
  std::barrier meet(2);
  world.run([&](int r) {
    Gpu& gpu = *gpus[r];
    Group& group = *world.ranks[r].group;
    DeviceQueue& caller = *gpu.caller;
    std::vector<float>&source = unfreed(100, 1), &data = unfreed(100, -1);
    int notifications = 0;
    const auto record = [&](std::vector<Call> calls) {
      StreamTarget target = gpu.target(true);
      target.conclude = [&] { gpu.device.order(*gpu.queues[0], caller); };
      group.capture(std::move(calls), "all_reduce", target, [&] {
        ++notifications;
        group.release_replays();
      });
    };
    gpu.device.begin_capture(caller);
    CHECK_THROWS(record({all_reduce(world, r, data)}), Error, "cannot replay this call: algorithm ");
    CHECK_THROWS(record({MessageCall{r == 0, data.data(), 4, 1 - r, 0}}), Error, "messages");
    CHECK(gpu.device.end_capture(caller)->size() == 0);

    meet.arrive_and_wait();
    if (r == 0) share_staging(world, gpus);
    meet.arrive_and_wait();
    gpu.device.begin_capture(caller);
    caller.copy(data.data(), source.data(), 400);
    record({all_reduce(world, r, data), all_reduce(world, r, data)});
    const auto graph = gpu.device.end_capture(caller);
    for (int i = 1; i <= 5; ++i) {
      source.assign(100, static_cast<float>(i));
      gpu.device.replay(*graph, caller);
      caller.synchronize();
      CHECK(data == std::vector<float>(100, static_cast<float>(4 * i)));
    }
    CHECK(group.sequence(Channel::Accelerator) == 0 && group.outstanding() == 0);

    meet.arrive_and_wait();
    if (r == 0) gpu.device.replay(*graph, caller);  // alone
    world.ranks[r].engine->abort(group, "enough");
    caller.synchronize();
    CHECK(notifications == 1);
    CHECK_THROWS(record({all_reduce(world, r, data)}), Error, "enough");
    meet.arrive_and_wait();
  });
}

TEST(flags_of_a_gate_that_was_never_entered_are_not_reused) {
  Gpu& gpu = *new Gpu(2, 1, 2);
  Flag late{0};
  gpu.caller->wait_flag(&late, 1);
  {
    Gate(gpu.flags).enter(*gpu.caller);
  }  // gone before the device has reached it and writes its flag
  Gate next(gpu.flags);
  next.enter(*gpu.side);
  gpu.side->synchronize();
  late.store(1);
  gpu.caller->synchronize();
  CHECK(next.entered());
  CHECK(gpu.flags->blocks() == 2);
}

UNIT_MAIN_THAT_LEAKS()
