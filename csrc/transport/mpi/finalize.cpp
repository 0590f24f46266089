// Ends MPI only when that cannot hang.
#include <mpi.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "bootstrap/watchdog.hpp"
#include "transport/mpi/mpi_network.hpp"
#include "transport/mpi/state.hpp"

namespace mpi_gdr::mpi {
namespace {

using std::chrono::steady_clock;

using Sums = std::array<std::uint64_t, 2>;

// MPI_Finalize has no deadline; a polled collective has. Adds up the `sums` of all ranks; MPI may still write
// them after a return of false.
bool all_ranks_come(const State& s, std::chrono::milliseconds patience, Sums& sums,
                    const std::function<std::string()>& missing) {
  const auto without_end = [&s](const std::string& why) {
    report(s.rank, "ends without MPI_Finalize: " + why);
    return false;
  };
  // A missing rank may have ended after this collective, which then succeeds, but MPI_Finalize would hang.
  if (missing && !missing().empty()) return false;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_UINT64_T, MPI_SUM, s.base,
                     &request) != MPI_SUCCESS)
    return without_end("MPI_Iallreduce failed");
  const auto start = steady_clock::now();
  const auto notice = start + std::chrono::seconds(10);
  bool noticed = false;
  steady_clock::time_point since{};  // when a rank was first missing
  auto next_look = start;
  std::chrono::microseconds pause(10);
  for (;;) {
    int done = 0;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return without_end("MPI_Test of the last MPI_Iallreduce failed");
    if (done) return true;
    const auto now = steady_clock::now();
    if (now > start + patience) {
      report(s.rank, "not all ranks reached MPI_Finalize within " +
                         std::to_string(std::chrono::duration<double>(patience).count()) +
                         " s; this rank ends without it");
      return false;
    }
    if (!noticed && now > notice) {
      noticed = true;
      report(s.rank, "waits for the other ranks before MPI_Finalize");
    }
    if (now > next_look && missing) {
      next_look = now + std::chrono::milliseconds(100);
      std::string text = missing();
      if (!text.empty() && since == steady_clock::time_point{}) since = now;
      // A rank may have completed this collective and ended already.
      if (!text.empty() && now - since > std::chrono::seconds(1)) return without_end(text);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
}

// For on_exit() of a rank that ends in order but without MPI_Finalize: hydra, MPICH's launcher, kills the
// other ranks and reports status 0 when a connection closes without this command of PMI-1 or its answer
// cannot be sent, which is why the rank waits for that.
void finalize_pmi(int status, void*) {
  const char* const number = std::getenv("PMI_FD");
  if (status != 0 || !number || !std::getenv("MPI_LOCALNRANKS")) return;
  constexpr std::string_view kLine = "cmd=finalize\n";
  pollfd pmi{std::atoi(number), POLLIN, 0};
  if (::send(pmi.fd, kLine.data(), kLine.size(), MSG_NOSIGNAL) < 0) return;
  while (::poll(&pmi, 1, 1000) < 0 && errno == EINTR) {
  }
  char answer[64];
  [[maybe_unused]] const ssize_t got = ::recv(pmi.fd, answer, sizeof answer, MSG_DONTWAIT);
}

}  // namespace

bool MpiNetwork::can_finalize() const noexcept {
  const State& s = state();
  return s.ready.load(std::memory_order_acquire) && s.started_by_us && s.pid == ::getpid() &&
         !mpi_is_finalized();
}

bool MpiNetwork::finalize(bool orderly, std::optional<std::uint64_t>& sum,
                          const std::function<std::string()>& missing) noexcept {
  State& s = state();
  static Sums sums;  // [1]: number of ranks without a sum
  sums = {sum.value_or(0), orderly && sum ? std::uint64_t{0} : std::uint64_t{1}};
  sum.reset();
  const bool idle = s.idle.end();  // before the library's exit handlers; all_ranks_come() polls
  if (!can_finalize()) return false;
  const auto end_without = [&] {
    if (orderly && s.under_launcher) ::on_exit(finalize_pmi, nullptr);
    return false;
  };
  if (!idle || s.failure.load(std::memory_order_acquire)) return end_without();
  s.ready.store(false, std::memory_order_release);
  try {
    constexpr std::chrono::seconds kStuck(30), kDisorderly(30);
    const auto patience =
        orderly ? s.finalize_timeout : std::min<std::chrono::milliseconds>(s.finalize_timeout, kDisorderly);
    {
      // Polling may hang inside MPI when a peer has vanished.
      Watchdog guard("the wait for all ranks before MPI_Finalize", steady_clock::now() + patience + kStuck,
                     s.rank);
      if (!all_ranks_come(s, patience, sums, missing)) return end_without();
      if (sums[1] == 0) sum = sums[0];
    }
    Watchdog guard("MPI_Finalize", steady_clock::now() + kStuck, s.rank);
    MPI_Comm_free(&s.base);
    if (MPI_Finalize() == MPI_SUCCESS) return true;
    report(s.rank, "MPI_Finalize failed");
  } catch (const std::exception& e) {
    report(s.rank, std::string("MPI is not finalised: ") + e.what());
  }
  return false;
}

}  // namespace mpi_gdr::mpi
