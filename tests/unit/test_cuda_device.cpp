// The CUDA library beside this program on a real device: kernels against host::reduce bit for bit, flags,
// order. Without library or device every test prints so and passes.
#include "device/load.hpp"
#include "device_elements.hpp"
#include "test.hpp"
#include "transport/ipc/device_arena.hpp"

using namespace mpi_gdr;
using namespace unit;

namespace {

Device* first_device() {
  static Device* const found = []() -> Device* {
    char program[4096] = {};
    if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0) return nullptr;
    const std::string path = program;
    LoadedLibrary loaded = load_device_library(path.substr(0, path.rfind('/') + 1) + "libmpi_gdr_cuda.so");
    if (!loaded.devices || loaded.devices->device_count(loaded.why) == 0) {
      std::printf("skipped: %s\n", loaded.why.c_str());
      return nullptr;
    }
    std::printf("on %s\n", loaded.devices->describe(0).c_str());
    return &loaded.devices->device(0);
  }();
  return found;
}

// A test of the first device, if there is one.
#define DEVICE_TEST(name)                                \
  static void body_of_##name(Device& device);            \
  TEST(name) {                                           \
    if (first_device()) body_of_##name(*first_device()); \
  }                                                      \
  static void body_of_##name(Device& device)

struct Memory {
  Device& device;
  unsigned char* const bytes;
  Memory(Device& device, std::size_t size)
      : device(device), bytes(static_cast<unsigned char*>(device.allocate(size))) {}
  ~Memory() { device.release(bytes); }
};

struct Shape {
  std::size_t count;
  int sources;
  std::size_t residue, shift;  // offset of all; more of the last source; in alignments of an element
};
constexpr Shape kShapes[] = {{1, 1, 0, 0},    {103, 2, 1, 0}, {103, 3, 1, 1},
                             {1000, 9, 0, 0}, {70, 40, 3, 0}, {400000, 3, 1, 0}};

}  // namespace

DEVICE_TEST(kernels_give_the_bits_of_the_host) {
  const auto queue = device.make_queue();
  std::mt19937 random(9);
  for (int d = 0; d < kDataTypeCount; ++d)
    for (const Shape& shape : kShapes) {
      const auto dtype = static_cast<DataType>(d);
      const std::size_t bytes = shape.count * item_size(dtype), stride = (bytes / 256 + 2) * 256;
      Memory memory(device, stride * static_cast<std::size_t>(shape.sources + 1));
      std::vector<std::vector<unsigned char>> values;
      std::vector<const void*> there, here;
      for (int k = 0; k < shape.sources; ++k) {
        values.push_back(random_elements(dtype, shape.count, random));
        const std::size_t offset = shape.residue + (k == shape.sources - 1 ? shape.shift : 0);
        there.push_back(memory.bytes + stride * static_cast<std::size_t>(k + 1) +
                        offset * alignment_of(dtype));
        queue->copy(const_cast<void*>(there.back()), values.back().data(), bytes);
      }
      for (const auto& v : values) here.push_back(v.data());
      for (int o = 0; o < kReduceOpCount; ++o) {
        const auto op = static_cast<ReduceOp>(o);
        if (!supports(op, dtype)) continue;
        std::vector<unsigned char> expected(bytes), result(bytes);
        ReduceArgs args{dtype, op, expected.data(), here.data(), shape.sources, shape.count};
        if (op == ReduceOp::Avg) args.divisor = 3;
        if (op == ReduceOp::PreMulSum) args.factor = 0.3;
        host::reduce(args);
        args.dst = memory.bytes + shape.residue * alignment_of(dtype);
        args.sources = there.data();
        queue->reduce(args);
        queue->copy(result.data(), args.dst, bytes);
        queue->synchronize();
        CHECK(same_but_for_nans(dtype, result, expected));
      }
    }
}

DEVICE_TEST(queues_wait_for_flags_and_write_them) {
  const auto flags = device.make_flags(2);
  CHECK(flags[0].load() == 0 && flags[1].load() == 0);
  const auto queue = device.make_queue();
  for (const std::uint32_t value : {1u, 2u, 7u}) {
    queue->wait_flag(&flags[0], value);
    queue->write_flag(&flags[1], value);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(flags[1].load() < value);
    flags[0].store(value, std::memory_order_release);
    while (flags[1].load(std::memory_order_acquire) != value) std::this_thread::yield();
  }
  queue->synchronize();
}

DEVICE_TEST(a_queue_is_ordered_behind_another) {
  const auto flags = device.make_flags(2);
  const auto first = device.make_queue(), second = device.make_queue();
  const auto null = device.adopt(nullptr);
  CHECK(!device.capturing(nullptr));
  first->wait_flag(&flags[0], 1);
  device.order(*first, *second);
  device.order(*second, *null);
  null->write_flag(&flags[1], 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(flags[1].load() == 0);
  flags[0].store(1, std::memory_order_release);
  null->synchronize();
  CHECK(flags[1].load() == 1);
}

DEVICE_TEST(group_memory_is_used_again_in_the_order_of_its_stream) {
  ipc::DeviceArena arena(device, ipc::DeviceArena::kLeastSegment);
  const std::size_t bytes = ipc::DeviceArena::kLeastSegment;
  const char streams[2] = {};
  auto* const memory = static_cast<unsigned char*>(arena.allocate(bytes, &streams[0]));
  CHECK(!arena.segment(0).handle.empty() && arena.find(memory + 5, bytes - 5)->offset == 5);
  const auto flags = device.make_flags(1);
  const auto queue = device.make_queue();
  queue->wait_flag(&flags[0], 1);
  queue->copy(memory + 1000, memory, 1000);
  arena.free(memory);
  CHECK(arena.allocate(bytes, &streams[0]) == memory);  // before the device has executed the copy
  arena.free(memory);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    flags[0].store(1, std::memory_order_release);
  });
  CHECK(arena.allocate(bytes, &streams[1]) == memory && flags[0].load() == 1);
  host.join();
  CHECK_THROWS(arena.allocate(1), NoMemory, "MPI_GDR_DEVICE_GROUP_MEMORY");
}

DEVICE_TEST(flags_of_replays_follow_the_devices_count) {
  Memory counts(device, 256);
  void* const page = std::aligned_alloc(4096, 4096);
  std::memset(page, 0, 4096);
  device.register_host(page, 4096);
  auto* const flags = static_cast<Flag*>(page);
  const auto queue = device.make_queue();
  queue->copy(counts.bytes, page, 256);
  queue->synchronize();  // before the page's zeros become flags
  const Replays replays{reinterpret_cast<Flag*>(counts.bytes), reinterpret_cast<Flag*>(counts.bytes + 128),
                        &flags[2]};
  for (std::uint64_t run = 1; run <= 3; ++run) {
    queue->count_replay(replays);
    queue->wait_flag(&flags[0], 7 - (std::uint64_t{1} << 32), replays);  // of the run before
    queue->write_flag(&flags[1], 5, replays);
    if (run > 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK(flags[1].load() == ((run - 1) << 32 | 5));
    }
    flags[0].store((run - 1) << 32 | 7, std::memory_order_release);
    queue->synchronize();
    CHECK(flags[1].load() == (run << 32 | 5));
  }
  queue->count_replay(replays);
  queue->wait_flag(&flags[0], 1, replays);
  queue->write_flag(&flags[1], 6, replays);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  flags[2].store(1, std::memory_order_release);
  queue->synchronize();
  CHECK(flags[1].load() == (std::uint64_t{3} << 32 | 5));  // cut short: nothing was written
  device.unregister_host(page);
  std::free(page);
}

DEVICE_TEST(what_a_device_refuses) {
  CHECK_THROWS(device.allocate(std::size_t{1} << 60), NoMemory, "device 0");
  const auto queue = device.make_queue();
  float f = 0;
  std::vector<const void*> sources(481, &f);
  CHECK_THROWS(queue->reduce({DataType::Float32, ReduceOp::Sum, &f, sources.data(), 481, 1}), Error,
               "source_count=481");
}

UNIT_MAIN()
