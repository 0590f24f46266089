// The weak order of gpu/weak_memory.hpp: a kernel's fences and barriers always hold, and nothing else does.
#include "gpu/translated.hpp"
#include "gpu/weak_memory.hpp"
#include "launch_kernel.hpp"
#include "test.hpp"
#include "torn_store.hpp"

using namespace fakecuda;
using namespace fakecuda::ptx;
using namespace unit;

namespace {

// The device's own memory and memory of others, in separate lines.
struct alignas(128) Words {
  u32 data[32] = {}, flag[32] = {}, seen[32] = {};
};
struct Memory {
  Words own, foreign;
};

// `foreign` belongs to the host.
struct Rules : MemoryRules {
  bool check(const void* address, std::size_t, bool) const override {
    return address >= &memory->foreign && address < &memory->foreign + 1;
  }
  Memory* memory = nullptr;
};

Memory& fresh() {
  static Rules rules;
  static auto& memory = *new Memory;
  weaken_memory();
  weak_memory()->release();
  weak_memory()->acquire();
  memory = {};
  rules.memory = &memory;
  set_memory_rules(&rules);
  return memory;
}

template <typename Body>
Kernel kernel(Body body, u32 bytes = 8) {
  return {"by hand", body, {}, bytes, 0, kRegisters, 1024};
}
Words& words(Thread& t) { return *reinterpret_cast<Words*>(load_param<u64, 1>(t, 0)[0]); }
template <Order kOrder = Order::Weak>
u32 get(Thread& t, u32& word) {
  return load<kOrder, u32, 1>(t, reinterpret_cast<u64>(&word))[0];
}
template <Order kOrder = Order::Weak>
void put(Thread& t, u32& word, u32 value) {
  store<kOrder, u32>(t, reinterpret_cast<u64>(&word), value);
}
void wait(Thread& t, u32& word) {
  while (get<Order::Volatile>(t, word) == 0) {
  }
}

void run(const Kernel& kernel, Words& words, unsigned blocks = 1, unsigned threads = 1, u64 seed = 1) {
  run_kernel(kernel, blocks, threads, seed, &words);
}

template <int kFence>
void fence_of(Thread& t) {
  if constexpr (kFence == 1) fence<Scope::Block>(t);
  if constexpr (kFence == 2) fence<Scope::Device>(t);
  if constexpr (kFence == 3) fence<Scope::System>(t);
}

// A message to the host, which reads it when the flag is set.
template <int kFence>
u32 read_by_host() {
  Memory& memory = fresh();
  run(kernel([](Thread& t) {
        put(t, words(t).data[0], 7);
        fence_of<kFence>(t);
        put<Order::Volatile>(t, words(t).flag[0], 1);
      }),
      memory.own);
  CHECK(memory.own.flag[0] == 1);
  return memory.own.data[0];
}

// A message from the host to a kernel that has read the old word.
template <int kFence>
u32 read_by_kernel() {
  Memory& memory = fresh();
  const Kernel read = kernel([](Thread& t) {
    get(t, words(t).data[0]);
    wait(t, words(t).flag[0]);
    fence_of<kFence>(t);
    put<Order::Volatile>(t, words(t).seen[0], get(t, words(t).data[0]));
  });
  Launch launch(read, 1, 1, parameters(&memory.foreign), whole_gpu());
  for (int i = 0; i < 10; ++i) launch.step();
  memory.foreign.data[0] = 7;
  memory.foreign.flag[0] = 1;
  finish(launch);
  return memory.foreign.seen[0];
}

// From the first block to the other, while both run.
template <int kFence>
u32 read_by_other_block(u64 seed) {
  Memory& memory = fresh();
  run(kernel([](Thread& t) {
        Words& it = words(t);
        if (t.ctaid == 0) {
          put(t, it.data[0], 7);
          fence_of<kFence>(t);
          put<Order::Volatile>(t, it.flag[0], 1);
          wait(t, it.flag[1]);  // the end of the block would publish it as well
        } else {
          wait(t, it.flag[0]);
          put<Order::Volatile>(t, it.seen[0], get(t, it.data[0]));
          put<Order::Volatile>(t, it.flag[1], 1);
        }
      }),
      memory.own, 2, 1, seed);
  return memory.own.seen[0];
}

}  // namespace

TEST(a_message_to_the_host_needs_a_fence_of_the_system) {
  CHECK(read_by_host<0>() == 0);
  CHECK(read_by_host<1>() == 0);
  CHECK(read_by_host<2>() == 0);
  CHECK(read_by_host<3>() == 7);
}

TEST(so_does_one_from_the_host) {
  CHECK(read_by_kernel<0>() == 0);
  CHECK(read_by_kernel<1>() == 0);
  CHECK(read_by_kernel<2>() == 0);
  CHECK(read_by_kernel<3>() == 7);
}

TEST(a_message_between_blocks_needs_a_fence_of_the_device) {
  for (u64 seed = 0; seed < 20; ++seed) {
    CHECK(read_by_other_block<0>(seed) == 0);
    CHECK(read_by_other_block<1>(seed) == 0);
    CHECK(read_by_other_block<2>(seed) == 7);
    CHECK(read_by_other_block<3>(seed) == 7);
  }
}

TEST(a_barrier_shows_the_block_what_its_threads_have_stored) {
  const auto rotate = [](bool with) {
    return with ? kernel([](Thread& t) {
      put(t, words(t).data[t.tid], t.tid + 1);
      barrier(t);
      put(t, words(t).seen[t.tid], get(t, words(t).data[(t.tid + 1) % t.ntid]));
    })
                : kernel([](Thread& t) {
                    put(t, words(t).data[t.tid], t.tid + 1);
                    t.poll();  // so do the others
                    put(t, words(t).seen[t.tid], get(t, words(t).data[(t.tid + 1) % t.ntid]));
                  });
  };
  for (u64 seed = 0; seed < 20; ++seed)
    for (const bool with : {true, false}) {
      Memory& memory = fresh();
      run(rotate(with), memory.own, 1, 32, seed);
      weak_memory()->release();
      int right = 0;
      for (u32 i = 0; i < 32; ++i) right += memory.own.seen[i] == (i + 1) % 32 + 1;
      CHECK(with ? right == 32 : right < 32);
    }
}

TEST(the_end_of_a_kernel_shows_the_device_and_not_the_host) {
  Memory& memory = fresh();
  run(kernel([](Thread& t) { put(t, words(t).data[t.tid], t.tid); }), memory.own, 1, 32);
  CHECK(memory.own.data[31] == 0);
  run(kernel([](Thread& t) { put<Order::Volatile>(t, words(t).seen[t.tid], get(t, words(t).data[t.tid])); }),
      memory.own, 1, 32);
  CHECK(memory.own.data[31] == 0 && memory.own.seen[31] == 31);
  weak_memory()->release();
  CHECK(memory.own.data[31] == 31);
}

// A kernel's start does not refresh the cache; a write before its submission does.
TEST(what_was_read_once_stays_until_something_is_waited_for) {
  Memory& memory = fresh();
  const Kernel read =
      kernel([](Thread& t) { put<Order::Volatile>(t, words(t).seen[0], get(t, words(t).data[0])); });
  const auto seen = [&](u64 submitted) {
    WeakMemory::executed() = submitted;
    run(read, memory.foreign);
    WeakMemory::executed() = 0;
    return memory.foreign.seen[0];
  };
  const u64 early = weak_memory()->submit();
  CHECK(seen(early) == 0);
  memory.foreign.data[0] = 7;
  CHECK(seen(early) == 0);
  CHECK(seen(weak_memory()->submit()) == 7);
  memory.foreign.data[0] = 8;
  CHECK(seen(early) == 7);
  weak_memory()->acquire();
  CHECK(seen(early) == 8);
}

TEST(a_thread_sees_its_own_stores_byte_by_byte) {
  for (const bool foreign : {false, true}) {
    Memory& memory = fresh();
    Words& it = foreign ? memory.foreign : memory.own;
    run(kernel([](Thread& t) {
          const auto at = reinterpret_cast<u64>(&words(t).data[1]);  // not 8-byte aligned
          get(t, words(t).data[1]);
          put(t, words(t).data[1], 0x11111111);
          put(t, words(t).data[2], 0x22222222);
          store<Order::Weak, u8>(t, at + 3, u8{0x33});
          store<Order::Weak, u16>(t, at + 4, u16{0x4444});
          const u32 high = load<Order::Weak, u16, 1>(t, at + 2)[0],
                    low = load<Order::Weak, u16, 1>(t, at + 4)[0];
          put<Order::Volatile>(t, words(t).seen[0], high << 16 | low);
          // Volatile stores overtake others and are not undone.
          put(t, words(t).flag[0], 1);
          put<Order::Volatile>(t, words(t).flag[0], 2);
          put<Order::Volatile>(t, words(t).seen[1], get(t, words(t).flag[0]));
        }),
        it);
    CHECK(it.seen[0] == 0x33114444 && it.seen[1] == 2 && it.flag[0] == 2 && it.data[1] == 0);
    weak_memory()->release();
    CHECK(it.data[1] == 0x33111111 && it.data[2] == 0x22224444 && it.flag[0] == 2);
    CHECK(it.data[0] == 0 && it.data[3] == 0);
  }
}

TEST(half_of_a_store_of_16_bytes_may_be_seen_and_never_half_of_a_flag) {
  fresh();
  CHECK((store_tears<Order::Volatile, u32, 4>() && store_tears<Order::Volatile, u64, 2>()));
  CHECK((!store_tears<Order::Volatile, u64, 1>()));
}

UNIT_MAIN()
