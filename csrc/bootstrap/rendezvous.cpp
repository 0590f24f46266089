#include "bootstrap/rendezvous.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>

#include "common/error.hpp"
#include "common/rank_list.hpp"

namespace mpigdr {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

std::string rank_key(const std::string& prefix, int rank) { return prefix + "/r" + std::to_string(rank); }

std::vector<std::string> meet(KvStore& store, const std::string& prefix, int rank, int size,
                              const std::string& blob, Deadline deadline, const std::function<void()>& poll) {
  const auto start = steady_clock::now();
  const std::string all = prefix + "/all";
  store.set(rank_key(prefix, rank), blob);
  const std::int64_t arrived = store.add(prefix + "/n", 1);
  if (arrived > size)
    fail(ErrorCode::InvalidUsage, "rendezvous '", prefix, "' was used before: arrival ", arrived, " of ",
         size,
         " ranks. The store still holds keys of another attempt; keys must carry run id and restart count");
  if (arrived == size) {
    std::vector<std::string> blobs;
    for (int r = 0; r < size; ++r) {
      auto value = store.try_get(rank_key(prefix, r));
      if (!value)
        fail(ErrorCode::InvalidUsage, "rendezvous '", prefix, "': ", size, " arrivals but none of rank ", r,
             "; two processes were given the same rank");
      blobs.push_back(std::move(*value));
    }
    store.set(all, pack(blobs));
    return blobs;
  }
  // All ranks poll one server: the pause grows with their number, so that they do not drown it.
  const microseconds longest(std::max(5'000, 50 * size));
  microseconds pause(100);
  while (!store.check(all)) {
    poll();
    const auto now = steady_clock::now();
    if (now >= deadline) {
      const auto missing = absent_ranks(store, prefix, size);
      const double waited = std::chrono::duration<double>(now - start).count();
      if (missing.empty())
        fail(ErrorCode::Timeout, "rendezvous '", prefix, "': all ", size,
             " ranks arrived, but the last one did not publish the result within ", waited,
             " s; it has died");
      fail(ErrorCode::Timeout, "rendezvous '", prefix, "': rank(s) ", rank_list(missing), " of ", size,
           " did not arrive within ", waited, " s (seen by rank ", rank,
           "). Look at the output of those ranks, or raise the timeout");
    }
    std::this_thread::sleep_for(std::min<steady_clock::duration>(pause, deadline - now));
    pause = std::min(pause * 3 / 2, longest);
  }
  auto packed = store.try_get(all);
  if (!packed) fail(ErrorCode::System, "rendezvous '", prefix, "': the store lost key '", all, "'");
  auto blobs = unpack(*packed);
  MPIGDR_CHECK(blobs.size() == static_cast<std::size_t>(size));
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
    const std::string text = e.what();  // torch adds a stack
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

std::string pack(const std::vector<std::string>& fields) {
  std::string text;
  for (const auto& field : fields) text += std::to_string(field.size()) + ":" + field;
  return text;
}

std::vector<std::string> unpack(const std::string& text) {
  std::vector<std::string> fields;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t length = 0;
    const std::size_t digits = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - digits < 12)
      length = length * 10 + static_cast<std::size_t>(text[at++] - '0');
    if (at == digits || at >= text.size() || text[at] != ':' || length > text.size() - at - 1)
      fail(ErrorCode::Internal, "malformed packed text at byte ", at, " of ", text.size());
    fields.push_back(text.substr(at + 1, length));
    at += 1 + length;
  }
  return fields;
}

}  // namespace mpigdr
