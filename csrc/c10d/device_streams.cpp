#include "c10d/device_streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "c10d/this_job.hpp"
#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "device/load.hpp"

namespace mpi_gdr::torch_binding {
namespace {

// Per device, for all groups; leaked with the device.
std::shared_ptr<StreamFlagPool> flag_pool(Device& device) {
  static std::mutex mutex;
  static auto* const pools = new std::map<Device*, std::shared_ptr<StreamFlagPool>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<StreamFlagPool>& pool = (*pools)[&device];
  // For thousands of outstanding programs; an operation may have two dozen. Making more may synchronise.
  if (!pool) pool = std::make_shared<StreamFlagPool>(device, 4096);
  return pool;
}

// As torch wraps foreign streams: the number is the handle.
c10::Stream wrap(DeviceQueue& queue, c10::Device where) {
  return c10::Stream(c10::Stream::UNSAFE, where, reinterpret_cast<c10::StreamId>(queue.native()));
}

enum Role { kCaptured, kFutures, kLanes, kDepartures, kRoles };
constexpr int kSets = 4;            // of streams, except kCaptured; further groups share them
std::atomic<int> failed_groups{0};  // relaxed: a counter

// Streams that deal_stream() deals to a device's groups in turn, with its mutex. Never destroyed: torch's
// allocator may record events on them as long as memory that they have used lives.
struct OwnStreams {
  std::array<std::vector<DeviceQueue*>, kRoles> pools;
  std::array<std::size_t, kRoles> dealt{};  // to groups
  std::vector<DeviceQueue*> replaced;       // after a failure, which may have left them blocked
  int failures = 0;                         // failed_groups when the pools were last replaced
};

DeviceQueue& deal_stream(Device& device, c10::Device where, Role role, int most) {
  // Held across calls of the device, which may wait: only a group's first use of a device takes it.
  static std::mutex mutex;
  static auto* const streams = new std::map<Device*, OwnStreams>;
  const std::lock_guard lock(mutex);
  OwnStreams& own = (*streams)[&device];
  if (const int failures = failed_groups.load(std::memory_order_relaxed);
      std::exchange(own.failures, failures) != failures)
    for (const Role blocked : {kFutures, kLanes, kDepartures}) {  // kCaptured runs no work
      own.replaced.insert(own.replaced.end(), own.pools[blocked].begin(), own.pools[blocked].end());
      own.pools[blocked].clear();
      own.dealt[blocked] = 0;
    }
  std::vector<DeviceQueue*>& pool = own.pools[role];
  const std::size_t at = own.dealt[role] % static_cast<std::size_t>(most);
  if (at == pool.size()) {
    const c10::impl::VirtualGuardImpl guard(where.type());
    const auto idle = std::ranges::find_if(
        own.replaced, [&](DeviceQueue* queue) { return guard.queryStream(wrap(*queue, where)); });
    pool.push_back(idle == own.replaced.end() ? device.make_queue().release() : *idle);
    if (idle != own.replaced.end()) own.replaced.erase(idle);
  }
  ++own.dealt[role];
  return *pool[at];
}

at::Tensor bytes_of_memory(std::size_t bytes, const at::TensorOptions& options, const char* what) {
  try {
    return at::empty({static_cast<std::int64_t>(bytes)}, options.dtype(at::kByte));
  } catch (const c10::Error& e) {
    throw NoMemory(NoMemory(bytes, what).what() + std::string(": ") + e.what_without_backtrace());
  }
}

}  // namespace

DeviceLibrary* device_library(c10::DeviceType type) {
  const LoadedLibrary* const loaded = loaded_library(c10::DeviceTypeName(type, /*lower_case=*/true));
  return loaded ? loaded->devices : nullptr;
}

bool serves_device(c10::Device where) {
  DeviceLibrary* const library = device_library(where.type());
  std::string why;
  return library && std::max<int>(where.index(), 0) < library->device_count(why);
}

void warn_of_fallback(c10::DeviceType type, bool sparse) {
  static std::atomic_flag logged;
  if (logged.test_and_set()) return;
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  std::string why = "no library of this package serves these devices";
  if (DeviceLibrary* const library = device_library(type)) {
    if (library->device_count(why) > 0)
      why = sparse ? "sparse tensors" : "MPI_GDR_BITS=exact, or another rank cannot use its devices";
    else
      why = std::string("the ") + library->name() + " library (" + library->built() +
            ") sees no device: " + why;
  } else if (const LoadedLibrary* const loaded = loaded_library(name)) {
    why = loaded->why;
  }
  log(Env::get().cuda == Env::Choice::Off ? LogLevel::Info : LogLevel::Warn, "INIT", name,
      " tensors: copied to the host and back, blocking: ", why);
}

std::string shortage_of_queues() {
  const char* const asked = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int of_group = Env::get().lanes + 2, ours = 1 + of_group, most = 1 + kSets * of_group;
  if (!asked || std::atoi(asked) > ours) return "";
  return std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + asked + ": " + std::to_string(ours) +
         " streams of this package (with more groups up to " + std::to_string(most) +
         ") and those of the program share these hardware queues, and a stream that "
         "waits for another rank blocks its queue; unset the variable, or set it to 32";
}

bool DeviceStreams::sees_messages_in_order() const {
  const bool takes = device_.orders_remote_writes() || Env::get().gpu_aware == Env::Choice::On;
  if (!takes)
    log(LogLevel::Warn, "INIT", where_.str(),
        " does not order writes of a network card before a later flag: messages go through pinned host "
        "memory (set MPI_GDR_GPU_AWARE=on if no network card writes to its memory)");
  return takes;
}

void DeviceStreams::pass_addresses() {
  this_job().engine().serve(device_);
  through_host_.store(false, std::memory_order_release);
}

void DeviceStreams::note_failed_group() noexcept { failed_groups.fetch_add(1, std::memory_order_relaxed); }

DeviceStreams::DeviceStreams(c10::Device where, DeviceLibrary& library, int lanes)
    : where_(where),
      device_(library.device(where.index())),
      flags_(flag_pool(device_)),
      departures_(deal_stream(device_, where, kDepartures, kSets)),
      futures_(deal_stream(device_, where, kFutures, kSets)),
      captured_(deal_stream(device_, where, kCaptured, 1)) {
  for (int lane = 0; lane < lanes; ++lane)
    queues_.push_back(&deal_stream(device_, where, kLanes, kSets * lanes));
}

c10::Stream DeviceStreams::wrap(DeviceQueue& queue) const { return torch_binding::wrap(queue, where_); }

c10::Stream DeviceStreams::current() const {
  return c10::impl::VirtualGuardImpl(where_.type()).getStream(where_);
}

std::unique_ptr<DeviceQueue> DeviceStreams::queue(const c10::Stream& stream) const {
  return device_.adopt(c10::impl::VirtualGuardImpl(where_.type()).getStreamNativeHandle(stream));
}

bool DeviceStreams::capturing(const c10::Stream& stream) const {
  return device_.capturing(c10::impl::VirtualGuardImpl(where_.type()).getStreamNativeHandle(stream));
}

at::Tensor DeviceStreams::device_memory(std::size_t bytes) const {
  return bytes_of_memory(bytes, at::TensorOptions(where_), "the operation on its device");
}

at::Tensor DeviceStreams::host_memory(std::size_t bytes) const {
  return bytes_of_memory(bytes, at::TensorOptions(at::kCPU).pinned_memory(true),
                         "messages through pinned host memory");
}

std::shared_ptr<DeviceStreams> Devices::find(c10::Device where) {
  if (where.is_cpu() || where.is_meta()) return nullptr;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<DeviceStreams>& streams = made_[{where.type(), where.index()}];
  if (streams) return streams;
  DeviceLibrary* const library = served_ ? device_library(where.type()) : nullptr;
  if (!library) return nullptr;
  const c10::impl::VirtualGuardImpl guard(where.type());
  if (library->device(where.index()).capturing(guard.getStreamNativeHandle(guard.getStream(where))))
    fail(ErrorCode::InvalidUsage, "the current stream is being captured into a graph, and group ", group_,
         " has not been used on ", where.str(), " yet: run one collective of it before the capture");
  streams = std::make_shared<DeviceStreams>(where, *library, Env::get().lanes);
  static std::atomic_flag warned;
  if (const std::string shortage = shortage_of_queues(); !shortage.empty() && !warned.test_and_set())
    log(LogLevel::Warn, "INIT", shortage);
  log(LogLevel::Info, "INIT", "group ", group_, ": messages of tensors on ", where.str(),
      " go through pinned host memory", gpu_aware_ ? ", until its first collective" : "");
  return streams;
}

bool Devices::capturing() {
  const std::lock_guard lock(mutex_);
  for (const auto& [where, streams] : made_)
    if (streams && streams->capturing(streams->current())) return true;
  return false;
}

}  // namespace mpi_gdr::torch_binding
