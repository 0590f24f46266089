#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>

#include "bootstrap/signed_store.hpp"
#include "common/error.hpp"
#include "common/rank_list.hpp"

namespace mpi_gdr {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

std::string rank_key(const std::string& prefix, int rank) { return prefix + "/r" + std::to_string(rank); }

// Prefix of the explanation that the last arrival publishes if it cannot publish the blobs.
constexpr char kRefused = '!';
constexpr std::chrono::seconds kForged(2);  // for the last arrival to overwrite a forged result

// A rank that stops waiting adds kLeft to the number of arrivals. Later arrivals then fail; otherwise they
// would block in an MPI call that the departed rank never makes.
constexpr std::int64_t kLeft = std::int64_t{1} << 32;
constexpr std::chrono::seconds kPublishing(10);  // allowed between the last arrival and its result

// Fails after a delay: ranks with another secret read the store for kForged, and this process, which may
// serve it, must not end before.
[[noreturn]] void refuse(const std::string& prefix, const std::string& why) {
  std::this_thread::sleep_for(kForged + std::chrono::seconds(1));
  fail(ErrorCode::Remote, "rendezvous '", prefix, "': ", why);
}

// Called by the last arrival, which publishes the reason if a blob is not signed.
std::vector<std::string> gather(KvStore& store, const std::string& prefix, int rank, int size) {
  std::vector<std::string> blobs;
  for (int r = 0; r < size; ++r) {
    try {
      auto value = store.try_get(rank_key(prefix, r));
      if (!value)
        fail(ErrorCode::InvalidUsage, "rendezvous '", prefix, "': ", size, " arrivals, but none of rank ", r,
             "; two processes were given the same rank");
      blobs.push_back(std::move(*value));
    } catch (const BadSignature&) {
      const std::string why = "rank " + std::to_string(r) +
                              "'s record is not signed with the secret that rank " + std::to_string(rank) +
                              " has: is MPI_GDR_SECRET equal on all ranks?";
      store.set(prefix + "/all", kRefused + why);
      refuse(prefix, why);
    }
  }
  return blobs;
}

[[noreturn]] void fail_late(KvStore& store, const std::string& prefix, int rank, int size, double waited) {
  const auto missing = absent_ranks(store, prefix, size);
  if (missing.empty())
    fail(ErrorCode::Timeout, "rendezvous '", prefix, "': all ", size,
         " ranks arrived, but the last one did not publish the result within ", waited, " s; it has died");
  fail(ErrorCode::Timeout, "rendezvous '", prefix, "': rank(s) ", rank_list(missing), " of ", size,
       " did not arrive within ", waited, " s (seen by rank ", rank,
       "). Look at the output of those ranks, or raise the timeout");
}

std::vector<std::string> meet(KvStore& store, const std::string& prefix, int rank, int size,
                              const std::string& blob, Deadline deadline, const std::function<void()>& poll) {
  const auto start = steady_clock::now();
  const std::string all = prefix + "/all";
  store.set(rank_key(prefix, rank), blob);
  const std::int64_t arrived = store.add(prefix + "/n", 1);
  if (arrived > kLeft)
    fail(ErrorCode::Timeout, "rendezvous '", prefix, "': another rank timed out before rank ", rank, " of ",
         size, " arrived. Find what delayed this rank, or raise the timeout");
  if (arrived > size)
    fail(ErrorCode::InvalidUsage, "rendezvous '", prefix, "' was used before: arrival ", arrived, " of ",
         size,
         " ranks. The store still holds keys of another attempt; keys must carry run id and restart count");
  if (arrived == size) {
    auto blobs = gather(store, prefix, rank, size);
    store.set(all, pack(blobs));
    return blobs;
  }
  // All ranks poll one server: the pause grows with their number to limit its load.
  const microseconds longest(std::max(5'000, 50 * size));
  microseconds pause(100);
  std::optional<std::string> packed;
  bool complete = false;                           // all ranks have arrived
  std::optional<steady_clock::time_point> forged;  // since when an unsigned result has been stored
  for (;;) {
    try {
      if (store.check(all) && (packed = store.try_get(all))) break;
    } catch (const BadSignature&) {
      const auto now = steady_clock::now();
      if (!forged) forged = now;
      if (now > *forged + kForged && store.add(prefix + "/n", 0) >= size) throw;
    }
    poll();
    const auto now = steady_clock::now();
    if (now >= deadline) {
      if (complete || store.add(prefix + "/n", kLeft) % kLeft < size)
        fail_late(store, prefix, rank, size, std::chrono::duration<double>(now - start).count());
      complete = true;  // too late for the last arrival to see that this rank gave up
      deadline = now + kPublishing;
    }
    std::this_thread::sleep_for(std::min<steady_clock::duration>(pause, deadline - now));
    pause = std::min(pause * 3 / 2, longest);
  }
  if (packed->starts_with(kRefused)) refuse(prefix, packed->substr(1));
  RecordReader record("the value of '" + all + "' in the store", *packed);
  std::vector<std::string> blobs;
  for (int r = 0; r < size; ++r) blobs.push_back(record.text("a rank's record"));
  record.end();
  return blobs;
}

}  // namespace

std::vector<std::string> rendezvous(KvStore& store, const std::string& prefix, int rank, int size,
                                    const std::string& blob, Deadline deadline,
                                    const std::function<void()>& poll) {
  if (size < 1 || rank < 0 || rank >= size)
    fail(ErrorCode::InvalidUsage, "rendezvous '", prefix, "': rank=", rank, " is not in 0..", size - 1);
  if (size == 1) return {blob};
  std::exception_ptr raised;  // by `poll`
  try {
    return meet(store, prefix, rank, size, blob, deadline, [&] {
      try {
        if (poll) poll();
      } catch (...) {
        raised = std::current_exception();
        throw;
      }
    });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    if (raised) std::rethrow_exception(raised);
    const std::string text = e.what();  // torch appends a stack trace
    fail(ErrorCode::System, "rendezvous '", prefix, "' on rank ", rank,
         ": the store failed: ", text.substr(0, text.find('\n')));
  }
}

std::vector<int> absent_ranks(KvStore& store, const std::string& prefix, int size) {
  std::vector<int> missing;
  for (int r = 0; r < size; ++r)
    if (!store.check(rank_key(prefix, r))) missing.push_back(r);
  return missing;
}

}  // namespace mpi_gdr
