// Ranks in separate processes: fork, barriers, and a watchdog that prints the stack of every thread.
#pragma once

#include <dirent.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace fakecuda_test {

// On SIGUSR1 every thread writes its stack to stderr.
inline void show_own_stack(int) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  static_cast<void>(!::write(STDERR_FILENO, "--\n", 3));
}
inline void show_all_stacks(int) {
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* const task = tasks ? ::readdir(tasks) : nullptr)
    if (const int id = std::atoi(task->d_name); id > 0) {
      ::syscall(SYS_tgkill, ::getpid(), id, SIGUSR2);
      ::usleep(2000);  // one after the other
    }
}

// Skips destructors, because threads still run, except that coverage counters are only written by exit().
[[noreturn]] inline void leave(int status) {
  std::fflush(nullptr);
#ifdef MPI_GDR_COVERAGE
  std::exit(status);
#else
  std::_Exit(status);
#endif
}

// Memory shared by all ranks. meet() returns at once if a rank has failed.
template <typename T>
struct Common {
  std::atomic<int> arrived{0}, round{0};
  std::atomic<bool> failed{false};
  T data{};

  void meet(int size) {
    const int before = round.load();
    if (arrived.fetch_add(1) + 1 == size) {
      arrived.store(0);
      round.fetch_add(1);
    }
    while (round.load() == before) {
      if (failed.load()) throw std::runtime_error("another rank has failed");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

// Runs `body(rank, common)` in `size` processes. Throws if one fails, or if they take longer than `limit`.
template <typename T>
void run_processes(int size, std::chrono::seconds limit, const std::function<void(int, Common<T>&)>& body) {
  void* const page =
      ::mmap(nullptr, sizeof(Common<T>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no memory");
  auto& common = *new (page) Common<T>;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* frame;
    backtrace(&frame, 1);  // loads libgcc before a handler needs it
    std::signal(SIGUSR1, show_all_stacks);
    std::signal(SIGUSR2, show_own_stack);
    int status = 1;
    try {
      body(rank, common);
      status = 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d of %d: %s\n", rank, size, e.what());
    }
    common.failed.store(common.failed.load() || status != 0);
    leave(status);
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  std::string failures;
  std::size_t left = children.size();
  bool late = false;
  while (left > 0 && !late) {
    for (int rank = 0; rank < size; ++rank) {
      pid_t& child = children[static_cast<std::size_t>(rank)];
      int status = 0;
      if (child == 0 || ::waitpid(child, &status, WNOHANG) != child) continue;
      child = 0;
      --left;
      if (status == 0) continue;
      common.failed.store(true);
      failures += " rank " + std::to_string(rank) +
                  (WIFSIGNALED(status) ? " died by signal " : " ended with ") +
                  std::to_string(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    late = std::chrono::steady_clock::now() > end;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = children[static_cast<std::size_t>(rank)];
    if (child == 0) continue;
    failures += " rank " + std::to_string(rank) + " hangs";
    std::fprintf(stderr, "rank %d of %d hangs; the stacks of its threads:\n", rank, size);
    ::kill(child, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  ::munmap(page, sizeof(Common<T>));
  if (!failures.empty()) throw std::runtime_error(failures);
}

}  // namespace fakecuda_test
