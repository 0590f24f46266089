#include "job/device_failure.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/env.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "engine/group.hpp"

namespace mpi_gdr {
namespace {

// Under MPS, a process that ends with pending device work makes the results of other processes undefined.
[[noreturn]] void end_after_drain(const Operation& operation) {
  static std::atomic<int> draining{0};
  draining.fetch_add(1, std::memory_order_seq_cst);
  const auto patience = Clock::now() + std::chrono::seconds(2);
  const auto wait_for = [&](const auto& reached) {
    while (!reached() && Clock::now() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  wait_for([&] { return operation.release_device(); });
  draining.fetch_sub(1, std::memory_order_seq_cst);
  wait_for(
      [] { return draining.load(std::memory_order_seq_cst) == 0; });  // other operations that have failed
  std::_Exit(kExitDeviceFailure);
}

}  // namespace

void captured_group_failed(const Group& group) noexcept {
  // NCCL's calls must not be replayed once they have been ended.
  const bool goes_on = !Env::get().end_on_device_failure && !group.captured_by_library();
  if (group.failure_code() == ErrorCode::Aborted || goes_on) return group.release_replays();
  try {
    log(LogLevel::Warn, "COLL", group.failure(), "; graphs hold collectives of group ", group.name(),
        ", whose replays never complete, so this process ends",
        group.captured_by_library() ? " (NCCL carries them, so with MPI_GDR_ASYNC_ERROR=raise, too)"
                                    : " (MPI_GDR_ASYNC_ERROR=raise: replays continue with undefined results, "
                                      "and the next call on the "
                                      "group raises instead)");
  } catch (const std::exception&) {
  }
  std::_Exit(kExitDeviceFailure);
}

void device_operation_failed(const OperationPtr& failed) {
  const Operation& operation = *failed;
  const GroupState& group = operation.group();
  const bool on_purpose = !group.failed() || group.failure_code() == ErrorCode::Aborted;
  if (on_purpose || operation.has_host_waiter.load(std::memory_order_acquire)) return unblock_device(failed);
  std::string text = group.failure();
  try {
    std::rethrow_exception(operation.error());
  } catch (const std::exception& e) {
    text = e.what();
  }
  if (!Env::get().end_on_device_failure) {
    log(LogLevel::Warn, "COLL", text,
        "; results on the device are undefined, the next call on the group raises");
    return unblock_device(failed);
  }
  log(LogLevel::Warn, "COLL", text,
      "; the device continues with undefined results, so this process ends "
      "(MPI_GDR_ASYNC_ERROR=raise: the next call on the group raises instead)");
  end_after_drain(operation);
}

}  // namespace mpi_gdr
