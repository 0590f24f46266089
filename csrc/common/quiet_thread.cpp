#include "common/quiet_thread.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <utility>

#include "common/exit_status.hpp"

namespace mpi_gdr {
namespace {

// A new thread inherits the mask, so no signal reaches it before it blocks them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

std::thread quiet_thread(const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  std::thread thread([name, body = std::move(body)] {
    try {
      body();
    } catch (const std::bad_alloc&) {
      char text[128];
      const int length = std::snprintf(
          text, sizeof text, "[mpi-gdr] thread %s is out of memory; this process ends with code %d\n", name,
          kExitStuck);
      [[maybe_unused]] const ssize_t written =
          ::write(STDERR_FILENO, text, static_cast<std::size_t>(std::min<int>(length, sizeof text - 1)));
      ::_exit(kExitStuck);
    }
  });
  pthread_setname_np(thread.native_handle(), name);  // by the creator, so that the name is set on return
  return thread;
}

}  // namespace mpi_gdr
