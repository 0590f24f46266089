// A rank on a software GPU: the shipped device library, a DeviceNode shared with other processes, and calls
// in flight whose results are compared at the end.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "common/error.hpp"
#include "device/load.hpp"
#include "execution/device/peer_execution.hpp"
#include "peer_calls.hpp"
#include "processes.hpp"
#include "transport/ipc/device_arena.hpp"

namespace fakecuda_test {

// At the same addresses in all ranks.
struct SharedAreas {
  alignas(4096) std::byte all[8][ipc::DeviceNode::bytes(8)];
  ipc::Areas of(int size) {
    ipc::Areas areas;
    for (int r = 0; r < size; ++r) areas.of.push_back(all[r]);
    return areas;
  }
};
using World = Common<SharedAreas>;

inline DeviceLibrary& load_library() {
  char program[4096] = {};
  if (::readlink("/proc/self/exe", program, sizeof program - 1) <= 0) fail(ErrorCode::System, "no /proc");
  const std::string path = program;
  const LoadedLibrary loaded =
      load_device_library(path.substr(0, path.rfind('/') + 1) + "libmpi_gdr_cuda.so");
  if (!loaded.devices) fail(ErrorCode::System, loaded.why);
  return *loaded.devices;
}
inline Device& load_device(int index) { return load_library().device(index); }

// Registered host memory, so that copies are asynchronous. Allocated in order, never freed.
class HostMemory {
 public:
  explicit HostMemory(Device& device)
      : begin_(static_cast<unsigned char*>(std::aligned_alloc(4096, kBytes))) {
    device.register_host(begin_, kBytes);
  }
  unsigned char* take(std::size_t bytes) {
    unsigned char* const memory = begin_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    if (used_ > kBytes) fail(ErrorCode::Internal, "too little host memory for this test");
    return memory;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{256} << 20;
  unsigned char* const begin_;
  std::size_t used_ = 0;
};

// Buffers in group memory: input, output, or one for both (all_reduce in place).
enum Grouped : unsigned { kInput = 1, kOutput = 2, kSame = 4 };

class PeerRank;

struct InFlight {
  Call call;
  SchedulePtr schedule;
  Binding binding;
  unsigned char *given = nullptr, *result = nullptr;  // on the host
  std::size_t given_bytes = 0, result_bytes = 0;
  std::shared_ptr<PeerExecution> execution;

  void set_input(int rank) {
    const Bytes input = input_of(call, rank);
    std::copy(input.begin(), input.end(), given);
    std::memset(result, 0xee, result_bytes);
  }
  void check(int rank) const {
    const Bytes wanted = expected(call, rank);
    if (unit::same_but_for_nans(call.dtype, Bytes(result, result + result_bytes), wanted)) return;
    fail(ErrorCode::Internal, "wrong result of ", schedule->algorithm, " ", name(call.algorithm->collective),
         " of ", call.count, " ", name(call.dtype), " ", name(call.op), ", call ", call.number);
  }
};

class PeerRank {
 public:
  PeerRank(int rank, int size, World& world, int device_index = 0)
      : device(load_device(device_index)),
        caller(device.make_queue()),
        rank(rank),
        size(size),
        world_(world),
        host_(device),
        owned_{device.make_queue(), device.make_queue()},
        flags_(std::make_shared<StreamFlagPool>(device, 64)) {
    node = std::make_shared<ipc::DeviceNode>(device, rank, world.data.of(size));
    node->publish();
    world.meet(size);
    std::string why;
    if (!node->attach(why)) fail(ErrorCode::System, why);
    world.meet(size);
    // Poison where attach() has written.
    const Bytes poison(static_cast<std::size_t>(size) << 18, kPoison);
    for (int slot = 0; slot < ipc::kSlots; ++slot)
      caller->copy(node->staging(rank, slot), poison.data(), poison.size());
    caller->synchronize();
    world.meet(size);
  }

  std::unique_ptr<InFlight> prepare(const Call& call, const Tuning& tuning, unsigned grouped) {
    auto made = std::make_unique<InFlight>();
    const CollectiveSpec spec = spec_of(call, rank);
    const SchedulePtr built = call.algorithm->build(spec, tuning);
    made->call = call;
    made->schedule = built->staged ? built->staged : built;
    most_staging_ =
        std::max<std::size_t>(most_staging_, made->schedule->staging_count * item_size(call.dtype));
    made->given_bytes = given_count(spec) * item_size(call.dtype);
    made->result_bytes = expected(call, rank).size();
    made->given = host_.take(made->given_bytes);
    made->result = host_.take(made->result_bytes);
    made->set_input(rank);
    Binding& binding = made->binding;
    binding.dtype = call.dtype;
    binding.op = call.op;
    if (call.op == ReduceOp::Avg) binding.divisor = static_cast<std::uint32_t>(size);
    if (call.op == ReduceOp::PreMulSum) binding.factor = kFactor;
    binding.send_counts = spec.send_counts;
    binding.recv_counts = spec.recv_counts;
    const bool same = grouped & kSame && call.algorithm->collective == Collective::AllReduce;
    const std::size_t shift = static_cast<std::size_t>(call.number % 2) * item_size(call.dtype);
    binding.output = room(made->result_bytes, (grouped & kOutput) || same, 0);
    binding.input = same ? binding.output : room(made->given_bytes, grouped & kInput, shift);
    return made;
  }

  // Afterwards all ranks have mapped each other's group memory.
  void share_group_memory() {
    for (int step = 0; step < 2; ++step) {  // publish, then map
      node->group_memory().refresh(use_);
      meet();
    }
  }

  // The caller's queue copies the input just before and the result just after.
  void issue(InFlight& it) {
    give(it, *caller);
    submit(it);
    take(it, *caller);
  }
  void submit(InFlight& it) {
    const auto use = use_++;
    node->group_memory().refresh(use);
    DeviceQueue* queues[] = {owned_[0].get(), owned_[1].get()};
    it.execution = std::make_shared<PeerExecution>(it.schedule, it.binding, node, use,
                                                   1000u + static_cast<unsigned>(use), flags_);
    it.execution->launch(device, queues, *caller, nullptr);
    device.order(*queues[0], *caller);
  }
  void give(const InFlight& it, DeviceQueue& queue) const {
    const bool in_place = it.call.algorithm->collective == Collective::Broadcast;
    if (in_place && rank != it.call.number % size) return;  // earlier contents do not matter
    queue.copy(in_place ? it.binding.output : const_cast<void*>(it.binding.input), it.given, it.given_bytes);
  }
  void take(const InFlight& it, DeviceQueue& queue) const {
    queue.copy(it.result, it.binding.output, it.result_bytes);
  }

  // Checks that nothing was written beside the blocks of group memory, nor in staging slots beyond the
  // largest use of any call.
  void check_canaries() {
    for (const void* const guard : guards_)
      expect_all(guard, kGuard, kCanary, "group memory was written beside a block");
    for (int slot = 0; slot <= ipc::kGraphSlot; ++slot)
      expect_all(node->staging(rank, slot) + most_staging_, ipc::kStagingBytes - most_staging_, kPoison,
                 "staging memory was written beyond its largest use");
  }

  void finish(const InFlight& it) const {
    it.check(rank);
    while (!it.execution->advance()) std::this_thread::yield();
  }
  void meet() { world_.meet(size); }
  // All ranks must call it, since each unmaps the others' memory.
  void close() {
    meet();
    node.reset();
    meet();
  }

  Device& device;
  const std::unique_ptr<DeviceQueue> caller;
  const int rank, size;
  std::shared_ptr<ipc::DeviceNode> node;

 private:
  // Uninitialised, `shift` bytes after an aligned address. Never freed.
  void* room(std::size_t bytes, bool grouped, std::size_t shift) {
    void* const memory = grouped ? guarded_room(bytes + shift) : device.allocate(bytes + shift);
    return static_cast<unsigned char*>(memory) + shift;
  }
  // Between two guard blocks.
  unsigned char* guarded_room(std::size_t bytes) {
    auto* const memory =
        static_cast<unsigned char*>(ipc::DeviceArena::of(device).allocate(kGuard + bytes + kGuard));
    for (unsigned char* const guard : {memory, memory + kGuard + bytes}) {
      caller->copy(guard, canaries_.data(), kGuard);
      guards_.push_back(guard);
    }
    return memory + kGuard;
  }
  void expect_all(const void* memory, std::size_t bytes, unsigned char value, const char* what) {
    Bytes found(bytes);
    caller->copy(found.data(), memory, bytes);
    caller->synchronize();
    if (std::count(found.begin(), found.end(), value) != static_cast<std::ptrdiff_t>(bytes))
      fail(ErrorCode::Internal, what);
  }

  World& world_;
  HostMemory host_;
  const std::array<std::unique_ptr<DeviceQueue>, 2> owned_;
  const std::shared_ptr<StreamFlagPool> flags_;
  std::uint64_t use_ = 0;

  static constexpr std::size_t kGuard = ipc::DeviceArena::kAlignment;
  static constexpr unsigned char kCanary = 0x5c, kPoison = 0xf7;  // poison of new device memory
  const Bytes canaries_ = Bytes(kGuard, kCanary);
  std::vector<const void*> guards_;
  std::size_t most_staging_ = 0;
};

}  // namespace fakecuda_test
