// Device programs and host programs joined by flags: every algorithm on the software CUDA in one process.
#include "stream_harness.hpp"

using namespace mpi_gdr;
using namespace stream_test;

namespace {

std::vector<int> sizes() {
  if (unit::kSanitized) return {1, 2, 5};
  return {1, 2, 3, 4, 5};
}

void run_everything(const Layout& layout, LoopbackOptions options, bool by_host = false) {
  on_all_ranks(
      layout,
      [&](Rank& rank) {
        std::vector<std::unique_ptr<Operation>> operations;
        int index = 0;
        for (const std::uint64_t count : {1u, 7u, 100u})
          for (const Algorithm& algorithm : scheduled_algorithms())
            operations.push_back(
                std::make_unique<Operation>(algorithm, rank.rank(), layout.size, count, index++, by_host));
        for (auto& operation : operations) operation->issue(rank);
        rank.drain();
        rank.caller->synchronize();
        for (auto& operation : operations)
          if (!operation->right())
            fail(ErrorCode::Internal, "wrong result of ", operation->schedule->algorithm, " ",
                 name(operation->spec.collective), " on rank ", rank.rank(), " of ", layout.size);
      },
      std::move(options));
}

void run_in_turn(Rank& rank, int size, std::uint64_t count, int operations) {
  const auto all = scheduled_algorithms();
  for (int i = 0; i < operations; ++i) {
    Operation operation(all[i % all.size()], rank.rank(), size, count, i);
    operation.issue(rank);
    rank.drain();
    rank.caller->synchronize();
    CHECK(operation.right());
  }
}

}  // namespace

TEST(every_algorithm_on_one_shared_hardware_queue) {
  for (const int size : sizes()) run_everything({size, 1, 3, 5}, {.eager_bytes = 64, .max_late_tests = 2});
}

TEST(every_algorithm_on_queues_of_their_own) {
  for (const int size : sizes()) run_everything({size, 4, 3, 5}, {.eager_bytes = 64, .max_late_tests = 2});
}

TEST(every_algorithm_with_fewer_queues_than_lanes) {
  for (const int size : {2, 5}) run_everything({size, 3, 2, 5}, {.eager_bytes = 0});
}

TEST(every_algorithm_through_host_memory) {
  for (const int size : sizes())
    for (const int hardware_queues : {1, 4})
      run_everything({size, hardware_queues, 3, 5}, {.eager_bytes = 64, .max_late_tests = 2}, true);
}

TEST(many_in_flight_joined_late_and_out_of_order) {
  for (const int hardware_queues : {1, 3})
    on_all_ranks({3, hardware_queues, 2, 20}, [&](Rank& rank) {
      const auto all = scheduled_algorithms("all_reduce");
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<std::unique_ptr<Operation>> operations;
        for (int i = 0; i < 16; ++i) {
          operations.push_back(std::make_unique<Operation>(all[i % all.size()], rank.rank(), 3, 50 + i, i));
          operations.back()->issue(rank, false);
        }
        std::vector<std::unique_ptr<DeviceQueue>> consumers;
        for (std::size_t i = operations.size(); i-- > 0;) {
          consumers.push_back(rank.device.make_queue());
          rank.device.order(*rank.queues[0], *consumers.back());
          operations[i]->consume(*consumers.back());
        }
        for (auto& consumer : consumers) consumer->synchronize();
        rank.drain();
        for (auto& operation : operations) CHECK(operation->right());
      }
    });
}

TEST(flags_are_reused_over_many_operations) {
  on_all_ranks({2, 1, 2, 0}, [&](Rank& rank) {
    run_in_turn(rank, 2, 20, 300);
    CHECK(rank.flags->blocks() == 2);
  });
}

TEST(memory_is_allocated_and_released_meanwhile) {
  for (const int hardware_queues : {1, 4})
    on_all_ranks({3, hardware_queues, 3, 20}, [&](Rank& rank) {
      std::atomic<int> rounds{0};
      const std::jthread other([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          rank.device.release(rank.device.allocate(1000));
          rounds.fetch_add(1, std::memory_order_relaxed);
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      });
      run_in_turn(rank, 3, 60, 40);
      while (rounds.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    });
}

// If both lanes were submitted round by round, each rank's shared queue would wait for the other's.
TEST(lanes_of_different_shape_share_a_queue) {
  on_all_ranks({2, 1, 1, 10}, [&](Rank& rank) {
    const Slice in{Buffer::Input, 0, 4}, out0{Buffer::Output, 0, 4}, out1{Buffer::Output, 4, 4};
    ScheduleWriter writer("crossed");
    const auto receive_then_add = [&](int peer, Slice dst, Slice buffer) {
      writer.lane();
      writer.round();
      writer.recv(peer, buffer);
      writer.round();
      writer.reduce(dst, {buffer, in});
    };
    const auto work_then_send = [&](int peer, Slice dst, Slice a, Slice b) {
      writer.lane();
      writer.round();
      writer.copy(a, in);
      writer.round();
      writer.copy(b, a);
      writer.round();
      writer.reduce(dst, {a, b});
      writer.round();
      writer.send(peer, dst);
    };
    const Slice a = writer.scratch(4), b = writer.scratch(4), c = writer.scratch(4);
    if (rank.rank() == 0) {
      receive_then_add(1, out0, c);
      work_then_send(1, out1, a, b);
    } else {
      work_then_send(0, out0, a, b);
      receive_then_add(0, out1, c);
    }
    const std::vector<Element> source(4, rank.rank() == 0 ? 1 : 10);
    std::vector<Element> input(4), output(8), scratch(12);
    rank.caller->copy(input.data(), source.data(), sizeof(Element) * 4);
    rank.run(writer.finish(), {.input = input.data(),
                               .output = output.data(),
                               .scratch = scratch.data(),
                               .dtype = DataType::Int32});
    rank.drain();
    // The sender has twice its own input, the receiver that plus its own.
    CHECK(output[0] == (rank.rank() == 0 ? 21 : 20) && output[7] == (rank.rank() == 0 ? 2 : 12));
  });
}

TEST(a_plain_copy_onto_itself_is_dropped_and_a_scaled_one_is_not) {
  on_all_ranks({1, 1, 1, 0}, [&](Rank& rank) {
    for (const Scale scale : {Scale::None, Scale::Average, Scale::PreMul}) {
      ScheduleWriter writer("scaled");
      writer.copy({Buffer::Output, 0, 3}, {Buffer::Input, 0, 3}, scale);
      std::vector<float> data{6, 9, -3};
      rank.run(writer.finish(), {.input = data.data(),
                                 .output = data.data(),
                                 .dtype = DataType::Float32,
                                 .op = scale == Scale::PreMul ? ReduceOp::PreMulSum : ReduceOp::Avg,
                                 .factor = 0.5,
                                 .divisor = 3});
      rank.drain();
      CHECK(data[1] == (scale == Scale::None ? 9.f : scale == Scale::Average ? 3.f : 4.5f));
    }
  });
}

TEST(nothing_is_sent_before_the_input_is_ready) {
  on_all_ranks({2, 1, 1, 0}, [&](Rank& rank) {
    const auto gate = rank.device.make_flags(1);
    rank.caller->wait_flag(&gate[0], 1);
    ScheduleWriter writer("exchange");
    writer.recv(1 - rank.rank(), {Buffer::Output, 0, 1});
    writer.send(1 - rank.rank(), {Buffer::Input, 0, 1});
    Element ready = 5 + rank.rank(), input = -1, output = -2;
    rank.caller->copy(&input, &ready, sizeof input);
    rank.run(writer.finish(), {.input = &input, .output = &output, .dtype = DataType::Int32});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(rank.pending_peers().empty());  // the receive is not even posted: the output may be in use
    gate[0].store(1, std::memory_order_release);
    rank.drain();
    CHECK(output == 6 - rank.rank());
  });
}

TEST(abandoning_drains_the_device) {
  auto faults = std::make_shared<LoopbackFaults>();
  faults->dead.store(true, std::memory_order_release);
  const auto algorithms = scheduled_algorithms("all_reduce");
  for (const Algorithm& algorithm : algorithms) {
    const auto operations = std::make_shared<std::vector<std::unique_ptr<Operation>>>(2);
    on_all_ranks({2, 1, 2, 0},
                 [&](Rank& rank) {
                   auto& operation = (*operations)[rank.rank()];
                   operation = std::make_unique<Operation>(algorithm, rank.rank(), 2, 40, 0);
                   operation->issue(rank);
                   if (rank.rank() == 0)
                     while (rank.pending_peers().empty()) std::this_thread::yield();
                   if (rank.rank() == 0) CHECK(rank.pending_peers() == std::vector<int>{1});
                   const auto abandoned = rank.abandon();
                   if (abandoned.empty()) operation->execution.reset();  // its flags belong to the device
                   rank.caller->synchronize();  // a flag that is never reached ends the process
                   CHECK(rank.rank() == 1 || abandoned.size() == 1);
                 },
                 {.faults = {nullptr, faults}});
  }
}

TEST(a_refused_program_is_through_when_what_was_submitted_is) {
  const Algorithm& algorithm = *find_algorithm(Collective::AllReduce, "ring");
  on_all_ranks({2, 3, 2, 5}, [&](Rank& rank) {
    if (rank.rank() == 1) return;                                     // sends nothing
    rank.flags = std::make_shared<StreamFlagPool>(rank.device, 200);  // none is returned
    bool refused = true, early = false;
    int taken = 0;
    for (; refused; ++taken) {
      Operation operation(algorithm, 0, 2, 100, taken);
      Flag late{0};
      rank.caller->wait_flag(&late, 1);
      operation.produce(*rank.caller);
      rank.device.refuse_after(taken);
      try {
        rank.run(operation.schedule, operation.binding, false);
        refused = false;
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::System);
      }
      rank.device.refuse_after(-1);
      const auto execution = rank.abandon().at(0);
      if (refused) execution->end_early(rank.device, rank.queues);
      early = execution->release_device();
      late.store(1, std::memory_order_release);
      while (!execution->release_device()) std::this_thread::yield();
      rank.caller->synchronize();  // before its memory is freed
    }
    CHECK(taken > 8 && !early);
  });
}

TEST(a_peer_that_sends_less_is_an_error) {
  const std::string error = unit::error_of([] {
    on_all_ranks({2, 1, 1, 0}, [&](Rank& rank) {
      const std::uint64_t count = rank.rank() == 0 ? 4 : 3;
      ScheduleWriter writer("unequal");
      if (rank.rank() == 0)
        writer.recv(1, {Buffer::Output, 0, count});
      else
        writer.send(0, {Buffer::Input, 0, count});
      std::vector<Element> memory(4);
      rank.run(writer.finish(), {.input = memory.data(), .output = memory.data(), .dtype = DataType::Int32},
               false);
      try {
        rank.drain();
      } catch (...) {
        rank.abandon();
        for (DeviceQueue* queue : rank.queues) queue->synchronize();
        throw;
      }
    });
  });
  CHECK(error.starts_with(name(ErrorCode::Mismatch)));
  CHECK_CONTAINS(error, "rank 1 sent 12 bytes where 16 were expected");
}

TEST(flag_counters_count_on_from_one_operation_to_the_next) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
  SoftwareDevice device;
  StreamFlagPool pool(device, 1);
  const StreamFlags first = pool.acquire(kMany);
  first.start()->store(first.base + 1, std::memory_order_release);
  first.host(3)->store(first.base + kMany, std::memory_order_release);
  pool.release(first);
  const StreamFlags second = pool.acquire(20);
  CHECK(second.flags == first.flags && second.base == kMany);
  CHECK(second.start()->load(std::memory_order_acquire) == 1 &&
        second.host(3)->load(std::memory_order_acquire) == kMany);
  const StreamFlags third = pool.acquire(20);
  CHECK(third.flags != second.flags && pool.blocks() == 2);
  pool.release(second);
  CHECK(pool.acquire(5).base == kMany + 20);
}

UNIT_MAIN()
