#include "cudart/turns.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "cudart/settings.hpp"
#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

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
  const auto goes_on = [&] { return !ours_ || Clock::now() < end_; };
  if (!goes_on() && stepping_ == 0) give_up();
  over_.wait(lock, goes_on);
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
  lock_file(F_WRLCK);
  ours_ = true;
  end_ = Clock::now() + std::chrono::microseconds(Settings::get().slice_us);
}

// Those who wait wake up and try again: a process that went on at once would have it before them.
void Turns::give_up() {
  lock_file(F_UNLCK);
  ours_ = false;
  over_.notify_all();
  if (kernels_ != 0) ::usleep(100);
}

void Turns::lock_file(int kind) {
  struct flock one{};
  one.l_type = static_cast<short>(kind);
  one.l_start = device_;
  one.l_len = 1;
  while (::fcntl(file_, F_OFD_SETLKW, &one) != 0)
    if (errno != EINTR) fault("time slices: the lock is refused");
}

}  // namespace fakecuda
