#include "transport/mpi/idle_progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "bootstrap/environment.hpp"
#include "common/env.hpp"
#include "common/log.hpp"
#include "common/quiet_thread.hpp"
#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kShortestPause(10), kLongestPause(160);
constexpr std::chrono::seconds kStuck(2);

// MPICH leaves the progress of libfabric to its calls, unless a user sets these. Not for UCX: it sends
// at once, and crashes at the first send after a peer has closed its connection.
bool is_needed() {
  const NetworkInfo info = network().info();
  const char* const chosen = control("CH4_NETMOD");
  const bool libfabric =
      chosen ? std::string_view(chosen) == "ofi"
             : info.device.find(":ofi") != info.device.npos || info.version.starts_with("Intel");
  return libfabric && !control_is_on("ASYNC_PROGRESS") && !control_is_on("CH4_OFI_ENABLE_DATA_AUTO_PROGRESS");
}

}  // namespace

void IdleProgress::begin() {
  const Env::Choice wanted = Env::get().idle_progress;
  int level = 0;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE || wanted == Env::Choice::Off ||
      (wanted == Env::Choice::Auto && !is_needed()))
    return;
  if (unmatched_receive_ == MPI_REQUEST_NULL) {
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_dup(MPI_COMM_SELF, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    // A receive to test, as MPI_Iprobe on a communicator of one process does not reach the network.
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, comm_, &unmatched_receive_), "MPI_Irecv");
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, before_finalize, &key, nullptr),
          "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
    check(MPI_Comm_free_keyval(&key), "MPI_Comm_free_keyval");
  }
  const std::lock_guard lock(mutex_);
  start_thread();
}

void IdleProgress::suspend_until_entry() {
  const bool ended = end();
  waits_for_entry_.store(ended && unmatched_receive_ != MPI_REQUEST_NULL, std::memory_order_relaxed);
}

bool IdleProgress::end() noexcept {
  if (state().pid != ::getpid()) return true;  // a forked child has no thread; mutex_ may be locked
  waits_for_entry_.store(false, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return ended_;
  ending_ = true;
  changed_.notify_all();
  const bool ended = changed_.wait_for(lock, kStuck, [this] { return ended_; });
  std::thread thread = std::move(thread_);
  lock.unlock();
  ended ? thread.join() : thread.detach();
  return ended;
}

// MPI_Finalize, which other libraries may call, deletes the attributes of MPI_COMM_SELF first.
int IdleProgress::before_finalize(MPI_Comm, int, void* self, void*) {
  auto& progress = *static_cast<IdleProgress*>(self);
  if (!progress.end() || progress.unmatched_receive_ == MPI_REQUEST_NULL) return MPI_SUCCESS;
  if (MPI_Cancel(&progress.unmatched_receive_) == MPI_SUCCESS) MPI_Request_free(&progress.unmatched_receive_);
  return MPI_Comm_free(&progress.comm_);
}

void IdleProgress::start_thread() {
  if (!ended_) return;
  if (thread_.joinable()) thread_.join();  // MPI has failed on it
  ending_ = ended_ = false;
  try {
    thread_ = quiet_thread("mpigdr-idle", [this] { run(); });
  } catch (const std::system_error& e) {
    ended_ = true;
    log(LogLevel::Warn, "INIT", "cannot start the thread that drives idle progress of MPI: ", e.what());
  }
}

void IdleProgress::restart() noexcept {
  if (state().pid != ::getpid()) return;
  const std::lock_guard lock(mutex_);
  if (!waits_for_entry_.exchange(false, std::memory_order_relaxed)) return;
  start_thread();
  changed_.notify_all();
}

void IdleProgress::run() {
  milliseconds pause = kShortestPause;
  std::uint64_t seen = entries_.load(std::memory_order_relaxed);
  const auto entered = [&] { return entries_.load(std::memory_order_relaxed) != seen; };
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool long_pause = pause > kShortestPause;
    waits_for_entry_.store(long_pause, std::memory_order_relaxed);
    changed_.wait_for(lock, pause, [&] { return ending_ || (long_pause && entered()); });
    if (entered() && !ending_) {
      seen = entries_.load(std::memory_order_relaxed);
      pause = kShortestPause;
      continue;
    }
    lock.unlock();
    int found = 0;
    const int code = MPI_Test(&unmatched_receive_, &found, MPI_STATUS_IGNORE);
    lock.lock();
    if (code != MPI_SUCCESS) {  // maybe no operation reports it again
      network().mark_failed("a call of the MPI library failed");
      break;
    }
    if (ending_) break;  // after a last test: the process may end without MPI_Finalize
    pause = std::min(2 * pause, kLongestPause);
  }
  waits_for_entry_.store(false, std::memory_order_relaxed);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace mpi_gdr::mpi
