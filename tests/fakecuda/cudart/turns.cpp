#include "cudart/turns.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <cerrno>

#include "cudart/settings.hpp"
#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

// Two locks for each device. A process waits for its turn with kNext held, and the next waits for kNext: else
// the last holder would take the turn again before the waiting one wakes up.
constexpr int kTurn = 0, kNext = 1;

int open_own_code() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&open_own_code), &info) == 0) return -1;
  return ::open(info.dli_fname, O_RDWR | O_CLOEXEC);
}

}  // namespace

void Turns::begin(bool first) {
  if (Settings::get().slice_us == 0) return;
  std::unique_lock lock(mutex_);
  kernels_ += first;
  while (ours_ && Clock::now() >= end_)
    if (stepping_ == 0)
      give_up();
    else
      over_.wait(lock);  // until the last end()
  if (!ours_) take();
  ++stepping_;
}

void Turns::end(bool last) {
  if (Settings::get().slice_us == 0) return;
  const std::lock_guard lock(mutex_);
  kernels_ -= last;
  if (--stepping_ == 0 && (kernels_ == 0 || Clock::now() >= end_)) give_up();
}

void Turns::take() {
  if (file_ < 0 && (file_ = open_own_code()) < 0) fault("time slices: no file to lock");
  lock_file(kNext, F_WRLCK);
  lock_file(kTurn, F_WRLCK);
  lock_file(kNext, F_UNLCK);
  ours_ = true;
  end_ = Clock::now() + std::chrono::microseconds(Settings::get().slice_us);
}

void Turns::give_up() {
  lock_file(kTurn, F_UNLCK);
  ours_ = false;
  over_.notify_all();
}

void Turns::lock_file(int which, int kind) {
  struct flock one{};
  one.l_type = static_cast<short>(kind);
  one.l_start = 2 * device_ + which;
  one.l_len = 1;
  while (::fcntl(file_, F_OFD_SETLKW, &one) != 0)
    if (errno != EINTR) fault("time slices: the lock is refused");
}

}  // namespace fakecuda
