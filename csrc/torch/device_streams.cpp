#include "torch/device_streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/env.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "device/load.hpp"
#include "torch/world.hpp"
#include "transport/mpi/device_support.hpp"

namespace mpigdr::torch_binding {
namespace {

std::mutex registry_mutex;

std::map<c10::DeviceType, DeviceLibrary*>& registered() {  // with registry_mutex
  static auto* const libraries = new std::map<c10::DeviceType, DeviceLibrary*>;
  return *libraries;
}

// Of the device, for all groups: flags of finished operations serve the next one. Leaked, as the device is.
std::shared_ptr<StreamFlagPool> flag_pool(Device& device) {
  static auto* const pools = new std::map<Device*, std::shared_ptr<StreamFlagPool>>;
  const std::lock_guard lock(registry_mutex);
  std::shared_ptr<StreamFlagPool>& pool = (*pools)[&device];
  // Some thousand programs in flight, of which an operation may have two dozen, before more flags have to be
  // made, which may wait for the device.
  if (!pool) pool = std::make_shared<StreamFlagPool>(device, 4096);
  return pool;
}

// Leaked, as the device is.
c10::Stream captured_stream(Device& device, c10::Device where) {
  static auto* const streams = new std::map<Device*, c10::Stream>;
  const std::lock_guard lock(registry_mutex);
  const auto found = streams->find(&device);
  if (found != streams->end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(where.type());
  return streams->emplace(&device, guard.getStreamFromGlobalPool(where, /*isHighPriority=*/true))
      .first->second;
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
  {
    const std::lock_guard lock(registry_mutex);
    const auto found = registered().find(type);
    if (found != registered().end()) return found->second;
  }
  if (type != c10::DeviceType::CUDA) return nullptr;
  static std::once_flag told;
  const LoadedLibrary& cuda = cuda_library();
  std::call_once(told, [&] {
    log(LogLevel::Info, "INIT", "CUDA tensors: ",
        cuda.library ? "on streams, by " + cuda.path : "copied to the host and back, blocking: " + cuda.why);
  });
  return cuda.library;
}

void use_device_library(c10::DeviceType type, DeviceLibrary* library) {
  const std::lock_guard lock(registry_mutex);
  registered()[type] = library;
}

// A library that takes the device's addresses calls its runtime by itself. If such a call waits for a stream
// that waits for a flag, which is raised when the message is there, neither ever ends: so tried once, on the
// stream that orders itself with all others.
bool DeviceStreams::moves_beside_a_wait(c10::Device where) const {
  static auto* const known = new std::map<Device*, bool>;
  const std::lock_guard lock(registry_mutex);
  if (const auto found = known->find(&device_); found != known->end()) return found->second;
  constexpr std::size_t kBytes = 1 << 20;  // beyond what is sent eagerly
  const at::Tensor from = device_memory(kBytes), to = device_memory(kBytes);
  const c10::impl::VirtualGuardImpl guard(where.type());
  const c10::Stream legacy = guard.getDefaultStream(where);
  guard.synchronizeStream(current());
  const auto flag = device_.make_flags(1);
  queue(legacy)->wait_flag(&flag[0], 1);
  const bool moves =
      mpi::moves_device_memory(from.const_data_ptr(), to.mutable_data_ptr(), kBytes, std::chrono::seconds(2),
                               [&] { flag[0].store(1, std::memory_order_release); });
  guard.synchronizeStream(legacy);
  if (!moves)
    log(LogLevel::Warn, "INIT", "the MPI library takes addresses of ", where.str(),
        " but waits for its streams when it does: messages go by way of pinned host memory instead");
  known->emplace(&device_, moves);
  return moves;
}

bool DeviceStreams::takes_messages() const {
  const bool takes = device_.orders_remote_writes() || Env::get().gpu_aware == Env::Choice::On;
  if (!takes)
    log(LogLevel::Warn, "INIT", "what a network card writes into the memory of ", where_.str(),
        " may come after a later flag, which this device cannot help: messages go by way of pinned host "
        "memory instead (MPI_GDR_GPU_AWARE=on: where no network card does)");
  return takes;
}

DeviceStreams::DeviceStreams(c10::Device where, DeviceLibrary& library, int lanes, bool gpu_aware)
    : where_(where),
      device_(library.device(where.index())),
      flags_(flag_pool(device_)),
      through_host_(!gpu_aware || !takes_messages() || !moves_beside_a_wait(where)),
      departures_(c10::impl::VirtualGuardImpl(where.type()).getStreamFromGlobalPool(where)),
      futures_(c10::impl::VirtualGuardImpl(where.type()).getStreamFromGlobalPool(where)),
      captured_(captured_stream(device_, where)) {
  const c10::impl::VirtualGuardImpl guard(where.type());
  while (streams_.size() < static_cast<std::size_t>(lanes)) {
    const c10::Stream dealt = guard.getStreamFromGlobalPool(where, /*isHighPriority=*/true);
    // What is being captured must not wait for what is not.
    if (dealt != captured_) streams_.push_back(dealt);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    owned_.push_back(queue(streams_[static_cast<std::size_t>(lane)]));
    queues_.push_back(owned_.back().get());
  }
}

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
                         "pinned memory of the host, by way of which messages go");
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
  streams = std::make_shared<DeviceStreams>(where, *library, Env::get().lanes, gpu_aware_);
  if (!streams->through_host()) World::get().engine().serve(streams->device());
  log(LogLevel::Info, "INIT", "group ", group_, ": messages of tensors on ", where.str(),
      streams->through_host() ? " go by way of pinned host memory"
                              : " are given to MPI where they are (GPU-aware)");
  return streams;
}

bool Devices::capturing() {
  const std::lock_guard lock(mutex_);
  for (const auto& [where, streams] : made_)
    if (streams && streams->capturing(streams->current())) return true;
  return false;
}

}  // namespace mpigdr::torch_binding
