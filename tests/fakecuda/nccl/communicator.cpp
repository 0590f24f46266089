#include "nccl/communicator.hpp"

#include <chrono>
#include <cstdlib>

namespace fakenccl {
namespace {

int number(const char* name, int otherwise) {
  const char* const given = std::getenv(name);
  return given && *given ? std::atoi(given) : otherwise;
}

constexpr std::size_t kConnectionBytes = 64 << 10;

int size_class_of(const Call& call) {
  const std::size_t bytes = call.count * size_of(call.type);
  return bytes <= 64 << 10 ? 0 : bytes <= 4 << 20 ? 1 : 2;
}

}  // namespace

const Settings& Settings::get() {
  static const Settings settings{.version = number("FAKENCCL_VERSION", 22703),
                                 .in_progress = number("FAKENCCL_IN_PROGRESS", 0),
                                 .async_error = number("FAKENCCL_ASYNC_ERROR", 0),
                                 .init_fails = number("FAKENCCL_INIT_FAILS", -1),
                                 .runtime_connect = number("NCCL_RUNTIME_CONNECT", 1) != 0};
  return settings;
}

DeviceScope::DeviceScope(int device) {
  if (cudaGetDevice(&before_) != cudaSuccess || cudaSetDevice(device) != cudaSuccess ||
      cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess)
    fault("a device is lost");
}

DeviceScope::~DeviceScope() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  static_cast<void>(cudaSetDevice(before_));
}

bool is_captured(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

}  // namespace fakenccl

namespace mpi_gdr::nccl {

using namespace fakenccl;

template <typename F>
bool Comm::wait_until(F reached) const {
  while (!reached()) {
    if (aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

Result Comm::start(const UniqueId& id) {
  if (Settings::get().init_fails == rank) return kSystemError;
  segment = Segment::open(id, ranks);
  if (!segment) return kSystemError;
  if (segment->rank(rank).attached.exchange(device + 1) != 0) fault("a rank is used twice with a unique id");
  std::set<int> devices;
  for (int other = 0; other < ranks; ++other) {
    const auto& attached = segment->rank(other).attached;
    if (!wait_until([&] { return attached != 0; })) return kRemoteError;
    devices.insert(attached);
  }
  segment->close_file();
  if (static_cast<int>(devices.size()) != ranks) return kInvalidUsage;  // "Duplicate GPU detected"
  const DeviceScope scope(device);
  if (const Result result = allocate()) return result;
  for (int kind = 0; kind < kCollectives && !Settings::get().runtime_connect; ++kind)
    for (int size_class = 0; size_class < kSizeClasses; ++size_class)
      if (const Result result = connect_collective(kind, size_class)) return result;
  return meet();
}

Result Comm::allocate() {
  void *memory = nullptr, *more = nullptr;
  if (cudaMalloc(&memory, kConnectionBytes) != cudaSuccess) return kUnhandledCudaError;
  memory_.push_back(memory);
  // cudaMalloc() may wait for the device, and cudaFree() does.
  if (cudaMalloc(&more, kConnectionBytes) != cudaSuccess || cudaFree(more) != cudaSuccess)
    return kUnhandledCudaError;
  return kSuccess;
}

Result Comm::connect(Flag& own, std::vector<Flag*> others) {
  if (captured_) fault("a call connects while its stream is captured");
  count("connects");
  if (const Result result = allocate()) return result;
  own = true;
  awaited_.insert(awaited_.end(), others.begin(), others.end());
  return kSuccess;
}

Result Comm::connect_collective(int kind, int size_class) {
  if (std::exchange(connected_[kind][size_class], true)) return kSuccess;
  std::vector<Flag*> others;
  for (int other = 0; other < ranks; ++other)
    others.push_back(&segment->rank(other).connected[kind][size_class]);
  return connect(segment->rank(rank).connected[kind][size_class], std::move(others));
}

Result Comm::post_connects(const Calls& calls) {
  const DeviceScope scope(device);
  captured_ = is_captured(calls.front().stream);
  for (const Call& call : calls) {
    Result result = kSuccess;
    if (is_collective(call)) {
      result = connect_collective(static_cast<int>(call.kind), size_class_of(call));
    } else if (pairs_.emplace(call.kind, call.root).second) {
      const bool receives = call.kind == Kind::Recv;
      Channel& channel = receives ? segment->channel(call.root, rank) : segment->channel(rank, call.root);
      result = connect(channel.connected[receives], {&channel.connected[!receives]});
    }
    if (result) return result;
  }
  return kSuccess;
}

Result Comm::meet() {
  for (const Flag* const flag : std::exchange(awaited_, {}))
    if (!wait_until([&] { return flag->load(); })) return kRemoteError;
  return kSuccess;
}

void Comm::run_later(std::function<Result()> work) {
  if (worker_.joinable()) worker_.join();
  status = kInProgress;
  worker_ = std::thread([this, work = std::move(work)] {
    const Result result = work();
    Result expected = kInProgress;  // launch() may have set an error
    status.compare_exchange_strong(expected, result);
  });
}

void Comm::release() {
  while (inside != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (worker_.joinable()) worker_.join();
  const DeviceScope scope(device);
  for (void* const memory : std::exchange(memory_, {})) static_cast<void>(cudaFree(memory));
  gone = true;
  segment = nullptr;
}

}  // namespace mpi_gdr::nccl
