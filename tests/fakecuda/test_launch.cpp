// Execution of kernels: turns of blocks, barriers, room on multiprocessors, and violations.
#include <set>

#include "end_of_process.hpp"
#include "gpu/translated.hpp"
#include "launch_kernel.hpp"
#include "test.hpp"
#include "torn_store.hpp"

using namespace fakecuda;
using namespace unit;
using namespace fakecuda::ptx;

namespace {

constexpr u64 kShared = 64 * 1024;

// A kernel whose only parameter is an address.
Kernel kernel(void (*body)(Thread&), u32 shared_bytes = 0) {
  return {"by hand", body, {}, 8, shared_bytes, kRegisters, 1024};
}

u64 argument(Thread& t) { return load_param<u64, 1>(t, 0)[0]; }

void add_one(Thread& t, u64 address) {
  store<Order::Weak, u32>(t, address, load<Order::Weak, u32, 1>(t, address)[0] + 1);
}

bool aborts(const std::string& rule, const std::function<void()>& run) {
  const End end = end_of(run);
  return end.signal == SIGABRT && end.text.starts_with("fakecuda: " + rule);
}

// Launches one thread with 64 bytes of memory and of shared memory.
void launch_one(void (*body)(Thread&)) {
  alignas(16) unsigned char memory[64] = {};
  const Kernel one = kernel(body, 64);
  run_kernel(one, 1, 1, 0, &memory);
}

bool faults(const char* rule, void (*body)(Thread&)) {
  const End end = end_of([&] { launch_one(body); });
  return end.signal == SIGABRT && end.text.starts_with(std::string("fakecuda: ") + rule) &&
         end.text.ends_with(" in thread 0 of block 0 of by hand\n");
}

}  // namespace

TEST(a_barrier_parts_what_comes_before_from_what_comes_after) {
  // Each thread writes a word of shared memory, and after the barrier reads another's.
  const Kernel rotate = kernel(
      [](Thread& t) {
        for (u32 round = 0; round < 3; ++round) {
          store_shared<u32>(t, t.tid * 4, t.tid * 10 + round);
          barrier(t);
          const u32 next = (t.tid + 1) % t.ntid;
          if (load_shared<u32, 1>(t, next * 4)[0] != next * 10 + round) return;
          barrier(t);
        }
        store<Order::Weak, u32>(t, argument(t) + (t.ctaid * t.ntid + t.tid) * 4, u32{1});
      },
      4 * 256);
  for (u64 seed = 0; seed < 20; ++seed) {
    std::vector<u32> right(5 * 256);
    run_kernel(rotate, 5, 256, seed, right.data());
    CHECK(std::set<u32>(right.begin(), right.end()) == std::set<u32>{1});
  }
}

TEST(shared_memory_is_the_blocks_own_and_poisoned) {
  const Kernel look = kernel(
      [](Thread& t) {
        const u32 before = load_shared<u32, 1>(t, 0)[0];
        store_shared<u32>(t, 0, t.ctaid);
        t.poll();  // so do the other blocks
        const bool own = load_shared<u32, 1>(t, 0)[0] == t.ctaid;
        store<Order::Weak, u32>(t, argument(t) + t.ctaid * 4, own ? before : 0);
      },
      4);
  u32 before[8] = {};
  run_kernel(look, 8, 1, 0, &before);
  for (const u32 word : before) CHECK(word == 0xcdcdcdcd);
}

TEST(resident_blocks_wait_for_each_other) {
  // Each block increments the word in its turn, the last block first.
  const Kernel in_turn = kernel([](Thread& t) {
    const u64 word = argument(t);
    while (load<Order::Volatile, u32, 1>(t, word)[0] != t.nctaid - 1 - t.ctaid) {
    }
    add_one(t, word);
  });
  for (u64 seed = 0; seed < 20; ++seed) {
    u32 word = 0;
    run_kernel(in_turn, 32, 1, seed, &word);
    CHECK(word == 32);
  }
}

TEST(a_thread_that_reads_and_writes_for_long_yields) {
  const Kernel long_one = kernel([](Thread& t) {
    for (int i = 0; i < 1000000; ++i) add_one(t, argument(t) + t.ctaid * 4);
  });
  u32 words[2] = {};
  Launch launch(long_one, 2, 1, parameters(&words), whole_gpu());
  CHECK(launch.step() == Launch::State::Running);
  CHECK(words[0] != 0 && words[1] != 0 && words[0] < 1000000 && words[1] < 1000000);
  finish(launch);
  CHECK(words[0] == 1000000 && words[1] == 1000000);
}

TEST(others_may_see_a_part_of_a_vector_and_not_of_a_word) {
  CHECK((store_tears<Order::Weak, u32, 4>() && store_tears<Order::Weak, u32, 2>()));
  CHECK((store_tears<Order::Weak, u64, 2>() && store_tears<Order::Volatile, u32, 4>()));
  CHECK((!store_tears<Order::Weak, u64, 1>() && !store_tears<Order::Volatile, u64, 1>()));
}

TEST(the_order_of_turns_depends_on_the_seed_alone) {
  const Kernel note = kernel([](Thread& t) {
    const u64 memory = argument(t);
    const u32 n = load<Order::Weak, u32, 1>(t, memory)[0];
    store<Order::Weak, u32>(t, memory, n + 1);
    store<Order::Weak, u32>(t, memory + 4 + n * 4, t.ctaid * t.ntid + t.tid);
  });
  const auto order = [&](u64 seed) {
    std::vector<u32> memory(1 + 4 * 8);
    run_kernel(note, 4, 8, seed, memory.data());
    return memory;
  };
  std::set<std::vector<u32>> orders;
  for (u64 seed = 0; seed < 10; ++seed) {
    CHECK(order(seed) == order(seed));
    orders.insert(order(seed));
  }
  CHECK(orders.size() == 10);
}

TEST(blocks_wait_for_room_on_a_multiprocessor) {
  const Kernel wait = kernel([](Thread& t) {
    if (t.tid == 0) __atomic_fetch_add(reinterpret_cast<u32*>(argument(t)), 1, __ATOMIC_RELAXED);
    while (load<Order::Volatile, u32, 1>(t, argument(t) + 4)[0] == 0) {
    }
  });
  const auto resident = [](const Kernel& kernel, unsigned threads) {
    Multiprocessors room(4);
    u32 words[2] = {};  // blocks begun, permission to continue
    Launch launch(kernel, 200, threads, parameters(&words), room);
    Launch other(kernel, 1, threads, parameters(&words), room);
    for (int i = 0; i < 2000; ++i) launch.step();
    const u32 begun = words[0];
    for (int i = 0; i < 2000; ++i) CHECK(other.step() == Launch::State::Waiting);
    CHECK(words[0] == begun);  // there is no room for another block
    words[1] = 1;
    finish(launch);
    finish(other);
    CHECK(words[0] == 201);
    return begun;
  };
  CHECK(resident(wait, 1) == 4 * 32);
  CHECK(resident(wait, 256) == 4 * 8);
  CHECK(resident(wait, 1024) == 4 * 2);
  Kernel greedy = wait;
  greedy.shared_bytes = kShared;
  CHECK(resident(greedy, 1) == 4 * 3);
  greedy.shared_bytes = 0;
  greedy.registers = 128;
  CHECK(resident(greedy, 256) == 4 * 2);
  greedy.registers = 33;  // 40 are allocated
  CHECK(resident(greedy, 256) == 4 * 6);
  greedy.registers = 255;  // for a warp, too
  CHECK(resident(greedy, 1) == 4 * 8);
}

TEST(launches_of_several_host_threads_wait_for_each_other) {
  // Launch k increments the word from 4n + k.
  const Kernel pass_on = kernel([](Thread& t) {
    const u64 word = argument(t);
    const u32 own = load_param<u32, 1>(t, 8)[0];
    for (u32 n = own; n < 4000; n += 4) {
      while (load<Order::Volatile, u32, 1>(t, word)[0] != n) {
      }
      fence<Scope::System>(t);
      store<Order::Volatile, u32>(t, word, n + 1);
    }
  });
  Kernel two_parameters = pass_on;
  two_parameters.param_bytes = 12;
  u32 word = 0;
  std::vector<std::thread> hosts;
  for (u32 k = 0; k < 4; ++k)
    hosts.emplace_back([&, k] {
      Launch launch(two_parameters, 1, 1, parameters(&word, k), whole_gpu());
      while (true) {
        const Launch::State state = launch.step();
        if (state == Launch::State::Ended) return;
        if (state == Launch::State::Waiting) std::this_thread::yield();
      }
    });
  for (std::thread& host : hosts) host.join();
  CHECK(word == 4000);
}

TEST(a_launch_goes_from_one_host_thread_to_another) {
  const Kernel count_up = kernel([](Thread& t) {
    for (int i = 0; i < 10000; ++i) add_one(t, argument(t) + t.tid * 4);
  });
  u32 words[32] = {};
  Launch launch(count_up, 1, 32, parameters(&words), whole_gpu());
  for (bool ended = false; !ended;)
    std::thread([&] { ended = launch.step() == Launch::State::Ended; }).join();
  for (const u32 word : words) CHECK(word == 10000);
}

TEST(what_a_kernel_must_not_do) {
  CHECK(faults("misaligned address: 0x", [](Thread& t) { load<Order::Weak, u32, 1>(t, argument(t) + 2); }));
  CHECK(faults("misaligned address: 0x", [](Thread& t) { load<Order::Weak, u32, 4>(t, argument(t) + 8); }));
  CHECK(faults("misaligned address: 0x",
               [](Thread& t) { store<Order::Weak, u64>(t, argument(t) + 4, u64{0}); }));
  CHECK(faults("out of bounds of shared memory: 0x40", [](Thread& t) { store_shared<u8>(t, 64, u8{0}); }));
  CHECK(faults("out of bounds of shared memory", [](Thread& t) { load_shared<u32, 1>(t, u64{0} - 4); }));
  CHECK(faults("out of bounds of the parameters", [](Thread& t) { load_param<u64, 2>(t, 0); }));
}

TEST(a_barrier_that_some_threads_never_come_to) {
  CHECK(aborts("a barrier that not all threads of the block come to", [] {
    const Kernel some = kernel([](Thread& t) {
      if (t.tid % 2) barrier(t);
    });
    run_kernel(some, 1, 4, 0, u64{0});
  }));
}

TEST(launches_that_cannot_be) {
  static const Kernel nothing = kernel([](Thread&) {});
  const auto drop = [](unsigned blocks, unsigned threads, std::size_t bytes) {
    return [=] { Launch(nothing, blocks, threads, std::vector<std::byte>(bytes), whole_gpu()); };
  };
  CHECK(aborts("a kernel that is dropped before its end", drop(1, 1024, 8)));
  CHECK(aborts("a launch without threads, or with more than its bounds allow", drop(1, 1025, 8)));
  CHECK(aborts("a launch without threads, or with more than its bounds allow", drop(1, 0, 8)));
  CHECK(aborts("a launch without threads, or with more than its bounds allow", drop(0, 1, 8)));
  CHECK(aborts("parameters of another size than the kernel's", drop(1, 1, 4)));
}

TEST(every_access_to_global_memory_is_asked_for) {
  struct Access {
    u64 address;
    std::size_t bytes;
    bool write;
    auto operator<=>(const Access&) const = default;
  };
  struct Rules : MemoryRules {
    mutable std::vector<Access> seen;
    bool check(const void* address, std::size_t bytes, bool write) const override {
      seen.push_back({reinterpret_cast<u64>(address), bytes, write});
      return false;
    }
  } rules;
  const Kernel some = kernel([](Thread& t) {
    const u64 memory = argument(t);
    load<Order::Weak, u32, 4>(t, memory);
    load<Order::Volatile, u64, 1>(t, memory + 16);
    store<Order::Volatile, u8>(t, memory + 3, u8{1});
    store<Order::Weak, u16>(t, memory + 8, u16{1}, u16{2});
  });
  alignas(16) unsigned char memory[32] = {};
  const auto at = reinterpret_cast<u64>(&memory);
  Launch launch(some, 1, 1, parameters(&memory), whole_gpu());
  set_memory_rules(&rules);
  finish(launch);
  set_memory_rules(nullptr);
  CHECK((rules.seen ==
         std::vector<Access>{{at, 16, false}, {at + 16, 8, false}, {at + 3, 1, true}, {at + 8, 4, true}}));
}

TEST(a_stack_that_overflows_ends_at_its_guard) {
  const End end = end_of([] {
    launch_one([](Thread& t) {
      volatile char much[Fiber::kStackBytes];
      much[0] = static_cast<char>(t.tid);
      if (much[0] != 0) t.poll();
    });
  });
  CHECK(end.signal == SIGSEGV);
}

UNIT_MAIN()
