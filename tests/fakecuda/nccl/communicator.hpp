// Communicators: their start, what they allocate at the first calls, and their end.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/segment.hpp"

namespace fakenccl {

// From environment variables such as FAKENCCL_VERSION. Read once.
struct Settings {
  int version;           // VERSION, of ncclGetVersion()
  int in_progress;       // IN_PROGRESS, ms by which nonblocking communicators issue every third group later
  int async_error;       // ASYNC_ERROR, the call of this process whose communicator fails, from 1
  int init_fails;        // INIT_FAILS, the rank
  bool runtime_connect;  // NCCL_RUNTIME_CONNECT, 0: collectives are connected at the start
  static const Settings& get();
};

inline constexpr int kPreMulSum = 5;

// Of an operation PreMulSum.
struct Factor {
  Type type;
  const void* device;  // null: it is `value`
  std::array<std::byte, 8> value;
};

struct Call {
  Kind kind;
  const void* input;
  void* output;
  std::size_t count;
  Type type;
  int op = kSum, root = 0;  // `root` is the peer of Send and Recv
  cudaStream_t stream = nullptr;
  Factor factor{};
  bool spins = false;  // ASYNC_ERROR: it never ends
};
using Calls = std::vector<Call>;

inline bool is_collective(const Call& call) { return call.kind < Kind::Send; }
inline std::size_t size_of(Type type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

// Sets CUDA's current device for a scope, and allows calls beside captures, as NCCL does.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Of the current device.
bool is_captured(cudaStream_t stream);

// Counts a function's call or "connects".
void count(const char* name);

}  // namespace fakenccl

// Never freed, so that a use after the end is found.
struct mpi_gdr::nccl::Comm {
  Comm(int ranks, int rank, int device, bool blocking)
      : ranks(ranks), rank(rank), device(device), blocking(blocking) {}

  // Attaches all ranks.
  Result start(const UniqueId& id);
  // Allocates and meets the other ranks for calls that are the first of their kind. post_connects() does not
  // wait for other ranks, meet() does.
  Result post_connects(const fakenccl::Calls& calls);
  Result meet();
  // Puts the calls on their stream, as one kernel.
  Result launch(const fakenccl::Calls& calls);
  // Runs `work` on another thread, and then sets `status` to what it returns.
  void run_later(std::function<Result()> work);
  // Frees all. Waits for calls of other threads and for the device.
  void release();

  const int ranks, rank, device;
  const bool blocking;
  std::atomic<Result> status{kInProgress};
  std::atomic<bool> aborted{false};       // or destroyed
  std::atomic<bool> gone{false};          // released
  std::atomic<int> inside{0};             // number of threads that issue calls or start
  std::atomic<std::thread::id> issuer{};  // the thread whose group has calls of this communicator
  std::atomic<std::uint64_t> moved{0};    // parts that its kernels have moved
  std::uint64_t launches = 0;             // with the machine's mutex
  std::atomic<std::uint64_t> turn{0};     // number of kernels that have ended
  std::unique_ptr<fakenccl::Segment> segment;

  std::mutex mutex;
  std::vector<std::optional<fakenccl::Factor>> factors;  // by operation, guarded by `mutex`

 private:
  using Flag = std::atomic<bool>;
  template <typename F>
  bool wait_until(F reached) const;  // false: aborted
  Result connect(Flag& own, std::vector<Flag*> others);
  Result connect_collective(int kind, int size_class);
  Result allocate();

  std::thread worker_;
  std::vector<Flag*> awaited_;  // by meet()
  bool captured_ = false;       // calls that are issued now
  bool connected_[fakenccl::kCollectives][fakenccl::kSizeClasses] = {};
  std::set<std::pair<fakenccl::Kind, int>> pairs_;  // connected, with the peer
  std::vector<void*> memory_;                       // of the device
};
