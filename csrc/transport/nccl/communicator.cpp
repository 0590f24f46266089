#include "transport/nccl/communicator.hpp"

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "common/quiet_thread.hpp"
#include "common/rank_list.hpp"

namespace mpi_gdr::nccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::pair<DataType, Type> kTypes[] = {
    {DataType::Float64, kFloat64},   {DataType::Float32, kFloat32}, {DataType::Float16, kFloat16},
    {DataType::BFloat16, kBfloat16}, {DataType::Int64, kInt64},     {DataType::Int32, kInt32},
    {DataType::Int8, kInt8},         {DataType::UInt64, kUint64},   {DataType::UInt32, kUint32},
    {DataType::UInt8, kUint8}};
constexpr std::pair<ReduceOp, Op> kOps[] = {// PreMulSum's is made for each call
                                            {ReduceOp::Sum, kSum},
                                            {ReduceOp::Avg, kAvg},
                                            {ReduceOp::Product, kProd},
                                            {ReduceOp::Min, kMin},
                                            {ReduceOp::Max, kMax}};

template <typename Ours, typename Theirs, std::size_t N>
std::optional<Theirs> find(const std::pair<Ours, Theirs> (&all)[N], Ours ours) {
  for (const auto& [key, value] : all)
    if (key == ours) return value;
  return std::nullopt;
}

bool is_float(DataType dtype) { return dtype <= DataType::BFloat16; }

}  // namespace

bool serves(DataType dtype) { return find(kTypes, dtype).has_value(); }

bool serves(DataType dtype, ReduceOp op) {
  if (!serves(dtype)) return false;
  // NCCL's minimum and maximum of floats ignore NaN, and its mean of integers rounds otherwise.
  if (op == ReduceOp::Min || op == ReduceOp::Max) return !is_float(dtype);
  if (op == ReduceOp::Avg) return is_float(dtype);
  if (op == ReduceOp::PreMulSum) return dtype == DataType::Float32 || dtype == DataType::Float64;
  return find(kOps, op).has_value();
}

struct Communicator::OfDevice {
  explicit OfDevice(Device& device) : queue(device.make_queue()), drained(device.make_flags(1)) {}
  std::mutex mutex;  // NCCL allows one thread at a time to submit to a device's communicators
  const std::unique_ptr<DeviceQueue> queue;
  std::atomic<int> ending{0};             // aborted communicators that may block mutex or queue
  const std::shared_ptr<Flag[]> drained;  // written by the queue: the last of `marks` that it has reached
  std::uint64_t marks = 0;                // with the mutex

  static OfDevice& of(Device& device) {
    static std::mutex guard;
    static auto& all = *new std::map<Device*, std::list<OfDevice>>;
    const std::lock_guard lock(guard);
    std::list<OfDevice>& those = all[&device];
    const auto free = std::ranges::find_if(
        those, [](const OfDevice& one) { return one.ending.load(std::memory_order_seq_cst) == 0; });
    return free != those.end() ? *free : those.emplace_back(device);
  }
};

// Freed only when the work that uses it has been ended.
struct Communicator::Trial {
  // Between these sizes NCCL changes its algorithm and protocol.
  static constexpr std::size_t kBytes[] = {8, std::size_t{64} << 10, std::size_t{1} << 20,
                                           std::size_t{32} << 20};
  Trial(Device& device, int size)
      : device(device),
        bytes(kBytes[std::size(kBytes) - 1] + static_cast<std::size_t>(size) * kBytes[0]),
        ended(device.make_flags(1)),
        queue(device.make_queue()),
        memory(static_cast<std::byte*>(device.allocate(2 * bytes))) {}
  ~Trial() {
    try {
      device.release(memory);
    } catch (const std::exception&) {
      // The device has failed, and its memory with it.
    }
  }
  Device& device;
  const std::size_t bytes;  // of the input, and of the output
  const std::shared_ptr<Flag[]> ended;
  const std::unique_ptr<DeviceQueue> queue;
  std::byte* const memory;
};

Communicator::Communicator(const Library& library, Device& device, std::shared_ptr<const ipc::NodeFlags> node)
    : library_(library),
      device_(device),
      node_(std::move(node)),
      shared_(OfDevice::of(device)),
      trial_(std::make_unique<Trial>(device, node_->size())) {}

std::shared_ptr<Communicator> Communicator::make(const Library& library, Device& device,
                                                 std::shared_ptr<const ipc::NodeFlags> node) {
  return std::shared_ptr<Communicator>(new Communicator(library, device, std::move(node)));
}

template <typename F>
void Communicator::step(const F& take) {
  ++steps_;
  for (int r = 0; r < node_->size(); ++r)
    node_->notices(r, 0, node_->rank()).store(steps_, std::memory_order_release);
  try {
    take();
  } catch (...) {
    node_->publish_failed();
    abort();
    throw;
  }
}

void Communicator::draw_id() {
  UniqueId id{};
  check(library_.GetUniqueId(&id), "ncclGetUniqueId");
  node_->offer(0).id = std::bit_cast<std::array<char, sizeof id>>(id);
}

void Communicator::connect(Deadline deadline) {
  step([&] {
    Config config;
    config.blocking = 0;
    Comm* comm = nullptr;
    const auto id = std::bit_cast<UniqueId>(node_->offer(0).id);
    const Result result = library_.CommInitRankConfig(&comm, node_->size(), id, node_->rank(), &config);
    comm_.store(comm, std::memory_order_release);
    settle(comm, result, "ncclCommInitRankConfig", deadline);
  });
}

Communicator::~Communicator() {
  Comm* const last = comm_.load(std::memory_order_acquire);
  if (!last || aborted_.load(std::memory_order_acquire)) return;
  // ncclCommDestroy may wait for other ranks, so this rank waits for it for 2 s at most.
  try {
    run_apart("mpigdr-nccl", [&library = library_, &device = device_, last] {
      device.enter_thread();  // throws, and leaks `last`, if the device has failed or its runtime has ended
      library.CommDestroy(last);
    }).wait_for(std::chrono::seconds(2));
  } catch (const std::exception&) {
    // No thread: the communicator leaks.
  }
}

void Communicator::check(Result result, const char* what) const {
  if (result == kSuccess || result == kInProgress) return;
  if (aborted_.load(std::memory_order_acquire)) fail(ErrorCode::Aborted, what, ": NCCL's work was ended");
  fail(ErrorCode::System, what, ": NCCL reports: ", library_.GetErrorString(result));
}

void Communicator::check_peers(Deadline deadline) const {
  std::vector<int> late;
  node_->each_peer([&](int r) {
    if (node_->failed(node_->rank(), r).load(std::memory_order_acquire))
      fail(ErrorCode::Remote, "rank ", node_->member(r), " could not set up NCCL");
    if (node_->notices(node_->rank(), 0, r).load(std::memory_order_acquire) < steps_)
      late.push_back(node_->member(r));
  });
  if (Clock::now() > deadline)
    fail(ErrorCode::Timeout, "the set-up of NCCL timed out; ",
         late.empty() ? "all ranks have begun it" : "still waiting for rank(s) ", rank_list(late));
}

void Communicator::settle(Comm* comm, Result result, const char* what,
                          std::optional<Deadline> deadline) const {
  check(result, what);
  // A thread of NCCL processes each call: mostly at once, but much later if it has to connect ranks.
  const auto patience = Clock::now() + std::chrono::microseconds(200);
  while (result == kInProgress) {
    if (aborted_.load(std::memory_order_acquire)) fail(ErrorCode::Aborted, what, ": NCCL's work was ended");
    if (deadline) check_peers(*deadline);
    if (Clock::now() < patience)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    check(library_.CommGetAsyncError(comm, &result), what);
    check(result, what);
  }
}

void Communicator::enqueue(std::span<const LibraryCall> calls, const Arguments& with, Stream stream,
                           std::optional<Deadline> deadline) const {
  Comm* const comm = comm_.load(std::memory_order_acquire);
  if (!comm || aborted_.load(std::memory_order_acquire)) fail(ErrorCode::Aborted, "NCCL's work was ended");
  const Type type = find(kTypes, with.dtype).value();
  const std::size_t item = item_size(with.dtype);
  Op op = find(kOps, with.op).value_or(kSum);
  const bool scales = with.op == ReduceOp::PreMulSum;
  if (scales) {
    double wide = with.factor;
    auto narrow = static_cast<float>(wide);
    void* const factor = type == kFloat64 ? static_cast<void*>(&wide) : &narrow;
    check(library_.RedOpCreatePreMulSum(&op, factor, type, kHostImmediate, comm), "ncclRedOpCreatePreMulSum");
  }
  check(library_.GroupStart(), "ncclGroupStart");
  Result result = kSuccess;
  for (const LibraryCall& call : calls) {
    const auto* const in = static_cast<const std::byte*>(with.input) + call.input * item;
    auto* const out = static_cast<std::byte*>(with.output) + call.output * item;
    const auto submit = [&] {
      switch (call.kind) {
        using enum LibraryCall::Kind;
        case AllReduce:
          return library_.AllReduce(in, out, call.count, type, op, comm, stream);
        case ReduceScatter:
          return library_.ReduceScatter(in, out, call.count, type, op, comm, stream);
        case AllGather:
          return library_.AllGather(in, out, call.count, type, comm, stream);
        case Broadcast:
          return library_.Broadcast(in, out, call.count, type, call.peer, comm, stream);
        case Reduce:
          return library_.Reduce(in, out, call.count, type, op, call.peer, comm, stream);
        case Send:
          return library_.Send(in, call.count, type, call.peer, comm, stream);
        case Receive:
          return library_.Recv(out, call.count, type, call.peer, comm, stream);
      }
      return kInvalidArgument;
    };
    if (const Result one = submit(); one != kSuccess && one != kInProgress) result = one;
  }
  const Result end = library_.GroupEnd();  // in any case: it ends the thread's group
  check(result, "NCCL's call");
  settle(comm, end, "ncclGroupEnd", deadline);
  if (scales) check(library_.RedOpDestroy(op, comm), "ncclRedOpDestroy");
}

void Communicator::submit(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& before,
                          DeviceQueue& after, std::optional<Deadline> deadline) {
  const std::lock_guard lock(shared_.mutex);
  device_.order(before, *shared_.queue);
  enqueue(calls, arguments, shared_.queue->native(), deadline);
  device_.order(*shared_.queue, after);
}

void Communicator::record(std::span<const LibraryCall> calls, const Arguments& arguments, DeviceQueue& queue,
                          Deadline deadline) {
  const std::lock_guard lock(shared_.mutex);
  enqueue(calls, arguments, queue.native(), deadline);
}

void Communicator::warm_up(Deadline deadline) {
  using Kind = LibraryCall::Kind;
  const auto size = static_cast<std::size_t>(node_->size());
  step([&] {
    DeviceQueue& queue = *trial_->queue;
    // NCCL has the most algorithms for sums of floats.
    const Arguments arguments{trial_->memory, trial_->memory + trial_->bytes, DataType::Float32,
                              ReduceOp::Sum, 1.0};
    for (const std::size_t sent : Trial::kBytes) {
      const std::size_t count = sent / sizeof(float), block = (count + size - 1) / size;
      for (const Kind kind :
           {Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast, Kind::Reduce}) {
        const bool blocks = kind == Kind::ReduceScatter || kind == Kind::AllGather;
        const LibraryCall call{kind, 0, 0, blocks ? block : count, 0};
        submit({&call, 1}, arguments, queue, queue, deadline);
      }
      std::vector<LibraryCall> messages;
      for (int r = 0; r < node_->size(); ++r)
        for (const Kind kind : {Kind::Send, Kind::Receive})
          messages.push_back({kind, 0, static_cast<std::size_t>(r) * block, block, r});
      submit(messages, arguments, queue, queue, deadline);
    }
    queue.write_flag(&trial_->ended[0], 1);
    while (trial_->ended[0].load(std::memory_order_acquire) == 0) {
      check_peers(deadline);
      if (const std::string text = error(); !text.empty()) fail(ErrorCode::System, text);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  trial_.reset();
}

std::string Communicator::error() const {
  if (aborted_.load(std::memory_order_acquire)) return "NCCL's work was ended";
  // The query changes NCCL's state, so it must not run beside a call, which finds errors itself.
  const std::unique_lock lock(shared_.mutex, std::try_to_lock);
  Comm* const comm = comm_.load(std::memory_order_acquire);
  if (!lock.owns_lock() || !comm) return "";
  Result result = kSuccess;
  if (const Result asked = library_.CommGetAsyncError(comm, &result); asked != kSuccess) result = asked;
  if (result == kSuccess || result == kInProgress) return "";
  return std::string("NCCL reports: ") + library_.GetErrorString(result);
}

void Communicator::abort() noexcept {
  shared_.ending.fetch_add(
      1, std::memory_order_seq_cst);  // first: a communicator made from now on must use another queue
  if (aborted_.exchange(true, std::memory_order_acq_rel)) {
    shared_.ending.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
  try {
    quiet_thread("mpigdr-nccl", [self = shared_from_this()] {
      OfDevice& shared = self->shared_;
      try {
        self->device_.enter_thread();
        Comm* comm = nullptr;
        {
          // A thread that submits looks at aborted_, but NCCL may hold it until the device's kernels end.
          std::unique_lock lock(shared.mutex, std::defer_lock);
          const auto patience = Clock::now() + std::chrono::seconds(1);
          while (!lock.try_lock() && Clock::now() < patience)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          comm = self->comm_.exchange(nullptr, std::memory_order_acq_rel);
        }
        if (comm) self->library_.CommAbort(comm);
        std::unique_lock lock(shared.mutex);
        const std::uint64_t mark = ++shared.marks;
        shared.queue->write_flag(&shared.drained[0], mark);
        lock.unlock();
        while (shared.drained[0].load(std::memory_order_acquire) < mark)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        shared.ending.fetch_sub(1, std::memory_order_seq_cst);
      } catch (const std::exception&) {
        // The device has failed, or its runtime has ended.
      }
    }).detach();
  } catch (const std::exception&) {
    // No thread: the device's work goes on, with the memory that it uses.
  }
}

}  // namespace mpi_gdr::nccl
