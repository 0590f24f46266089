// The guard around calls that cannot be interrupted: its messages, and how the process ends.
#include "bootstrap/watchdog.hpp"
#include "common/exit_status.hpp"
#include "test.hpp"

using namespace mpi_gdr;

namespace {

struct Ended {
  int status = 0;
  std::string output;
  bool has(const char* part) const { return output.find(part) != std::string::npos; }
};

// Status and output of a child that runs `body` and then would exit with 0.
Ended end_of(const std::function<void()>& body) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.output.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status));
  ended.status = WEXITSTATUS(status);
  return ended;
}

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace

TEST(a_call_that_ends_the_process_is_named_with_who_is_gone) {
  const Ended ended = end_of([] {
    // A process that is being killed: gone at the second look.
    auto lost = [looks = 0]() mutable { return ++looks < 2 ? "" : std::string("rank 1 is gone"); };
    const Watchdog outer("the start", in(60s), 3);
    const Watchdog guard("MPI_Init_thread", in(60s), 3, {}, lost);
    std::exit(0x30f);  // like MPICH, with a code of its own; a shell sees the low byte
  });
  CHECK(ended.status == 15);
  CHECK(ended.has(
      "rank 3: MPI_Init_thread has ended this process: rank 1 is gone; this process ends with code 15"));
  CHECK(!ended.has("the start"));
}

TEST(an_exit_elsewhere_is_not_blamed_on_a_call) {
  const Ended after = end_of([] {
    {
      const Watchdog guard("MPI_Init_thread", in(60s), 3);
    }
    std::exit(7);
  });
  CHECK(after.status == 7 && after.output.empty());
  const Ended beside = end_of([] {
    std::atomic<bool> inside{false};
    std::thread([&] {
      const Watchdog guard("MPI_Comm_create_group", in(60s), 3);
      inside.store(true, std::memory_order_release);
      std::this_thread::sleep_for(60s);
    }).detach();
    while (!inside.load(std::memory_order_acquire)) std::this_thread::sleep_for(1ms);
    std::exit(8);
  });
  CHECK(beside.status == 8 && beside.output.empty());
}

TEST(a_call_that_passes_its_deadline_ends_the_process) {
  const Ended ended = end_of([] {
    const Watchdog guard("MPI_Finalize", in(50ms), 2, [] { return std::string("nobody is missing"); });
    std::this_thread::sleep_for(60s);
  });
  CHECK(ended.status == kExitStuck);
  CHECK(ended.has("rank 2: MPI_Finalize has not returned by its deadline; this process ends with code 124"));
  CHECK(ended.has("rank 2: nobody is missing"));
}

TEST(a_call_that_can_never_return_ends_the_process) {
  const Ended ended = end_of([] {
    const Watchdog guard("MPI_Init_thread", in(60s), 0, {}, [] { return std::string("rank 1 is gone"); });
    std::this_thread::sleep_for(60s);
  });
  CHECK(ended.status == kExitStuck);
  CHECK(ended.has("MPI_Init_thread cannot return: rank 1 is gone"));
}

TEST(a_reason_that_has_gone_does_not_end_the_process) {
  const Ended ended = end_of([] {
    // A container whose other ranks have not started yet.
    auto lost = [looks = 0]() mutable { return ++looks < 3 ? std::string("no other rank is here") : ""; };
    const Watchdog guard("MPI_Init_thread", in(60s), 0, {}, lost);
    std::this_thread::sleep_for(4s);
  });
  CHECK(ended.status == 0 && ended.output.empty());
}

UNIT_MAIN()
