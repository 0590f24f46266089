// The functions of NCCL, and groups of calls.
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <map>
#include <string>

#include "nccl/communicator.hpp"

#define FAKENCCL_API extern "C" __attribute__((visibility("default")))

using namespace fakenccl;

// So that the definitions below have these types.
#define FUNCTION(result, name, ...) FAKENCCL_API result nccl##name(__VA_ARGS__);
MPI_GDR_NCCL_FUNCTIONS(FUNCTION)

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> counts;
};
Counts& counts() {
  static auto& leaked = *new Counts;
  return leaked;
}

// Of the calling thread, from the first ncclGroupStart() to the last ncclGroupEnd().
struct Group {
  int depth = 0;
  Result error = kSuccess;
  std::vector<std::pair<Comm*, Calls>> calls;  // by communicator
  std::vector<Comm*> ended;                    // to be released
};
Group& group() {
  thread_local Group group;
  return group;
}

Result usable(const Comm* comm) {
  if (!comm) return kInvalidArgument;
  if (comm->aborted) return kInvalidUsage;
  const Result status = comm->status;
  return status == kInProgress ? kInvalidUsage : status;
}

struct Buffer {
  const std::byte* begin;
  std::size_t bytes;
};

// Faults for memory that the device cannot access.
void expect_memory(const Comm& comm, Buffer buffer) {
  for (const std::byte* at : {buffer.begin, buffer.begin + buffer.bytes - (buffer.bytes > 0)}) {
    cudaPointerAttributes attributes;
    if (buffer.bytes == 0) return;
    if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess ||
        attributes.type == cudaMemoryTypeUnregistered)
      fault("a buffer is not CUDA's");
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != comm.device)
      fault("a buffer belongs to another device than the communicator");
  }
}

// Faults for buffers that overlap in another way than NCCL defines.
void expect_buffers(const Comm& comm, const Call& call) {
  const std::size_t bytes = call.count * size_of(call.type),
                    all = bytes * static_cast<std::size_t>(comm.ranks);
  const std::size_t own = bytes * static_cast<std::size_t>(comm.rank);
  const bool root = call.root == comm.rank;
  const auto buffer = [](const void* begin, bool used, std::size_t bytes) {
    return Buffer{static_cast<const std::byte*>(begin), used ? bytes : 0};
  };
  const Kind kind = call.kind;
  const Buffer input = buffer(call.input, kind != Kind::Recv && (kind != Kind::Broadcast || root),
                              kind == Kind::ReduceScatter ? all : bytes);
  const Buffer output = buffer(call.output, kind != Kind::Send && (kind != Kind::Reduce || root),
                               kind == Kind::AllGather ? all : bytes);
  expect_memory(comm, input);
  expect_memory(comm, output);
  const bool in_place = kind == Kind::AllGather       ? input.begin == output.begin + own
                        : kind == Kind::ReduceScatter ? output.begin == input.begin + own
                                                      : input.begin == output.begin;
  if (!in_place && input.bytes > 0 && output.bytes > 0 && input.begin < output.begin + output.bytes &&
      output.begin < input.begin + input.bytes)
    fault("input and output overlap");
}

Result check_arguments(Comm* comm, Call& call) {
  if (const Result result = usable(comm)) return result;
  if (call.type < kInt8 || call.type > kBfloat16 || call.op < 0) return kInvalidArgument;
  if (call.root < 0 || call.root >= comm->ranks) return kInvalidArgument;
  if (call.op > kAvg) {
    const std::lock_guard lock(comm->mutex);
    const auto made = static_cast<std::size_t>(call.op - kPreMulSum);
    if (made >= comm->factors.size() || !comm->factors[made]) return kInvalidArgument;
    call.factor = *comm->factors[made];
    if (call.factor.type != call.type) return kInvalidArgument;
    call.op = kPreMulSum;
  }
  if (call.count > 0) expect_buffers(*comm, call);
  return kSuccess;
}

void add(Comm* comm, const Call& call) {
  std::thread::id none{};
  if (!comm->issuer.compare_exchange_strong(none, std::this_thread::get_id()) &&
      none != std::this_thread::get_id())
    fault("two threads issue calls of a communicator at once");
  auto& all = group().calls;
  auto found = std::find_if(all.begin(), all.end(), [&](const auto& it) { return it.first == comm; });
  if (found == all.end()) found = all.insert(all.end(), {comm, {}});
  found->second.push_back(call);
  static std::atomic<int> issued{0};
  found->second.back().spins = ++issued == Settings::get().async_error;
}

using Part = std::pair<Comm*, Calls>;

Result issue(const std::vector<Part>& parts) {
  for (const auto& [comm, calls] : parts)
    if (const Result result = comm->post_connects(calls)) return result;
  for (const auto& [comm, calls] : parts)
    if (const Result result = comm->meet()) return result;
  for (const auto& [comm, calls] : parts)
    if (const Result result = comm->launch(calls)) return result;
  return kSuccess;
}

Result issue_now_or_later(const std::vector<Part>& parts) {
  if (parts.empty()) return kSuccess;
  const bool blocking = parts.front().first->blocking;
  for (const auto& [comm, calls] : parts)
    if (comm->blocking != blocking) return kInvalidArgument;
  static std::atomic<int> groups{0};
  const bool later = Settings::get().in_progress && !blocking && ++groups % 3 == 0;
  const auto captured = [](const Part& part) {
    const DeviceScope scope(part.first->device);
    return is_captured(part.second.front().stream);
  };
  if (!later || std::any_of(parts.begin(), parts.end(), captured)) return issue(parts);
  for (const Part& part : parts)
    part.first->run_later([part] {
      std::this_thread::sleep_for(std::chrono::milliseconds(Settings::get().in_progress));
      return issue({part});
    });
  return kInProgress;
}

Result end_group() {
  if (group().depth == 0) return kInvalidUsage;
  if (--group().depth > 0) return kSuccess;
  const Group done = std::exchange(group(), {});
  for (const auto& [comm, calls] : done.calls) ++comm->inside;
  Result result = done.error;
  for (const auto& [comm, calls] : done.calls)
    if (comm->aborted && !result) result = kInvalidUsage;
  if (!result) result = issue_now_or_later(done.calls);
  for (const auto& [comm, calls] : done.calls) {
    comm->issuer = std::thread::id{};
    --comm->inside;
  }
  for (Comm* const comm : done.ended) comm->release();
  return result;
}

Result submit(const char* name, Comm* comm, Stream stream, Call call) {
  count(name);
  call.stream = static_cast<cudaStream_t>(stream);
  ++group().depth;
  Result result = check_arguments(comm, call);
  if (!result && (call.count > 0 || !is_collective(call))) add(comm, call);
  if (result) group().error = result;
  const Result end = end_group();
  return result ? result : end;
}

// ncclCommAbort() and, without `abort`, ncclCommDestroy().
Result end(Comm* comm, bool abort) {
  if (!comm) return kInvalidArgument;
  if (comm->issuer.load() == std::this_thread::get_id())
    fault("a communicator ends in a group with its calls");
  if (!abort && comm->status == kInProgress) return kInvalidUsage;
  if (!abort && comm->segment && !comm->aborted) {
    const DeviceScope scope(comm->device);
    if (cudaDeviceSynchronize() != cudaSuccess) return kUnhandledCudaError;
  }
  if (comm->aborted.exchange(true)) fault("a communicator is aborted or destroyed twice");
  if (group().depth > 0)
    group().ended.push_back(comm);
  else
    comm->release();
  return kSuccess;
}

Result check_config(const Config* config, bool& blocking) {
  Config given;
  if (config) {
    std::size_t size = 0;
    std::memcpy(&size, config, sizeof size);
    std::memcpy(&given, config, std::min(size, sizeof given));
  }
  const auto valid = [](int value, bool valid) { return value == INT_MIN || valid; };
  if (given.magic != 0xcafebeef) return kInvalidArgument;
  if (given.version < 21400) given.blocking = INT_MIN;
  if (given.version < 21700) given.cga_cluster_size = given.min_ctas = given.max_ctas = INT_MIN;
  if (given.version < 21800) given.split_share = INT_MIN;
  if (!valid(given.blocking, given.blocking == 0 || given.blocking == 1) ||
      !valid(given.cga_cluster_size, given.cga_cluster_size >= 0) ||
      !valid(given.min_ctas, given.min_ctas > 0) || !valid(given.max_ctas, given.max_ctas > 0) ||
      (given.min_ctas != INT_MIN && given.max_ctas != INT_MIN && given.min_ctas > given.max_ctas) ||
      !valid(given.split_share, given.split_share == 0 || given.split_share == 1))
    return kInvalidArgument;
  blocking = given.blocking != 0;
  return kSuccess;
}

}  // namespace

void fakenccl::count(const char* name) {
  const std::lock_guard lock(counts().mutex);
  ++counts().counts[name];
}

// Calls of this process by the name of the function, such as "ncclAllReduce"; also "connects".
FAKENCCL_API std::uint64_t fakenccl_count(const char* name) {
  const std::lock_guard lock(counts().mutex);
  const auto found = counts().counts.find(name);
  return found == counts().counts.end() ? 0 : found->second;
}

Result ncclGetVersion(int* version) {
  count(__func__);
  if (!version) return kInvalidArgument;
  *version = Settings::get().version;
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  count(__func__);
  if (!id) return kInvalidArgument;
  const auto made = Segment::make_id();
  if (!made) return kSystemError;
  *id = *made;
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  count(__func__);
  bool blocking = true;
  if (!comm || ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  if (const Result result = check_config(config, blocking)) return result;
  if (group().depth > 0) fault("not modelled: ncclCommInitRankConfig in a group");
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return kUnhandledCudaError;
  auto* const made = new Comm(ranks, rank, device, blocking);
  *comm = made;
  if (!blocking) {
    made->run_later([made, id] { return made->start(id); });
    return kInProgress;
  }
  made->status = made->start(id);
  if (made->status == kSuccess) return kSuccess;
  *comm = nullptr;
  made->aborted = true;
  made->release();
  return made->status;
}

Result ncclCommDestroy(Comm* comm) {
  count(__func__);
  return end(comm, false);
}

Result ncclCommAbort(Comm* comm) {
  count(__func__);
  return end(comm, true);
}

Result ncclCommGetAsyncError(Comm* comm, Result* error) {
  count(__func__);
  if (!comm || !error) return kInvalidArgument;
  if (comm->aborted) return kInvalidUsage;
  *error = comm->status;
  return kSuccess;
}

Result ncclGroupStart() {
  count(__func__);
  ++group().depth;
  return kSuccess;
}

Result ncclGroupEnd() {
  count(__func__);
  return end_group();
}

Result ncclAllReduce(const void* input, void* output, std::size_t count, Type type, Op op, Comm* comm,
                     Stream stream) {
  return submit(__func__, comm, stream, {Kind::AllReduce, input, output, count, type, op});
}

Result ncclReduceScatter(const void* input, void* output, std::size_t received, Type type, Op op, Comm* comm,
                         Stream stream) {
  return submit(__func__, comm, stream, {Kind::ReduceScatter, input, output, received, type, op});
}

Result ncclAllGather(const void* input, void* output, std::size_t sent, Type type, Comm* comm,
                     Stream stream) {
  return submit(__func__, comm, stream, {Kind::AllGather, input, output, sent, type, kSum, 0});
}

Result ncclBroadcast(const void* input, void* output, std::size_t count, Type type, int root, Comm* comm,
                     Stream stream) {
  return submit(__func__, comm, stream, {Kind::Broadcast, input, output, count, type, kSum, root});
}

Result ncclReduce(const void* input, void* output, std::size_t count, Type type, Op op, int root, Comm* comm,
                  Stream stream) {
  return submit(__func__, comm, stream, {Kind::Reduce, input, output, count, type, op, root});
}

Result ncclSend(const void* input, std::size_t count, Type type, int peer, Comm* comm, Stream stream) {
  return submit(__func__, comm, stream, {Kind::Send, input, nullptr, count, type, kSum, peer});
}

Result ncclRecv(void* output, std::size_t count, Type type, int peer, Comm* comm, Stream stream) {
  return submit(__func__, comm, stream, {Kind::Recv, nullptr, output, count, type, kSum, peer});
}

Result ncclRedOpCreatePreMulSum(Op* op, void* factor, Type type, Residence residence, Comm* comm) {
  count(__func__);
  if (!op || !factor || type < kInt8 || type > kBfloat16) return kInvalidArgument;
  if (const Result result = usable(comm)) return result;
  Factor made{type, residence == kDevice ? factor : nullptr, {}};
  if (residence == kDevice)
    expect_memory(*comm, {static_cast<const std::byte*>(factor), size_of(type)});
  else
    std::memcpy(made.value.data(), factor, size_of(type));
  const std::lock_guard lock(comm->mutex);
  auto free = std::find(comm->factors.begin(), comm->factors.end(), std::nullopt);
  if (free == comm->factors.end()) free = comm->factors.insert(free, std::nullopt);
  *free = made;
  *op = static_cast<Op>(kPreMulSum + (free - comm->factors.begin()));
  return kSuccess;
}

Result ncclRedOpDestroy(Op op, Comm* comm) {
  count(__func__);
  if (const Result result = usable(comm)) return result;
  const std::lock_guard lock(comm->mutex);
  const auto made = static_cast<std::size_t>(op) - kPreMulSum;
  if (made >= comm->factors.size() || !comm->factors[made]) return kInvalidArgument;
  comm->factors[made] = std::nullopt;
  return kSuccess;
}

FAKENCCL_API const char* ncclGetErrorString(Result result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return result >= 0 && result <= kInProgress ? kTexts[result] : "unknown result code";
}

FAKENCCL_API const char* ncclGetLastError(Comm*) { return ""; }
