// The groups of this process, who is in them, and what happens to them when a rank is lost, leaves, or gives
// a group up (bootstrap/heartbeat finds out and tells).
//
// A member whose process has ended, or that is silent for too long: every group that has it fails, with a
// sentence that names it; groups without it go on. A member that leaves, or whose group has failed, says how
// far it took part: later operations of that group fail, earlier ones may still end well.
//
// Threads: all members from any thread; begin(), end_generation() and stop() from one at a time. No lock is
// held while a peer, the store or the engine is waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "bootstrap/news.hpp"
#include "engine/engine.hpp"
#include "job/blocking_calls.hpp"
#include "job/orphan_watch.hpp"
#include "job/slow_calls.hpp"
#include "transport/network.hpp"

namespace mpi_gdr {

class Heartbeat;

class Liveness {
 public:
  // `network` outlives it.
  explicit Liveness(Network& network) : network_(network) {}

  // Watches the members of the network, which is started, and the agent that started this process, from now
  // on; other hosts over this store. `prefix` of the keys: unique per generation.
  void begin(const std::string& prefix, std::function<std::unique_ptr<KvStore>()> connect);

  // The others hear that this rank goes on in another generation, and the watching stops until begin().
  void end_generation();

  // `members` are torch's global ranks, by rank in the group; `key` is equal on all of them and used once.
  void opened(Engine& engine, const std::shared_ptr<GroupState>& group, std::vector<int> members,
              std::string key);
  // The program has destroyed or aborted it.
  void closed(const GroupState& group);
  // It has failed on this rank, for a reason that the others do not know: it is published. Does not wait.
  void failed(const GroupState& group, const std::string& reason) noexcept;
  // The failure of a group that the program has neither destroyed nor aborted since, or "".
  std::string unsettled() const;

  // What has become of one of these ranks, or "".
  // `or_left`: also of those that merely left, and so will not come to anything new.
  std::string lost_among(const std::vector<int>& ranks, bool or_left = false) const;
  // The same of the members of a group that has met an error, with a look at the processes of this host now.
  std::string explain(const GroupState& group) const;
  std::string explain(const std::vector<int>& members) const;
  // Which of the members may be stopped or cut off, and may come back; or "".
  std::string quiet(const GroupState& group) const;

  // Calls that cannot be interrupted; whether they may never return is looked at here.
  BlockingCalls& blocking() { return blocking_; }

  SlowCalls& slow_calls() { return slow_calls_; }

  // Of all groups that were closed: the sum over the ranks is 0, or some ranks of a group have called
  // different collectives. Nothing where one had failed.
  std::optional<std::uint64_t> checksum_of_calls() const {
    if (!comparable_.load(std::memory_order_relaxed)) return std::nullopt;
    return checksum_.load(std::memory_order_relaxed);
  }

  // This process ends: from now on news changes no group any more. `why` completes "rank 3 has left the job:
  // ". The sentence is made now and sent by farewell().
  void end(const std::string& why);
  // Sends it, waiting at most so long. `meets_again`: this rank waits for the others before it ends MPI.
  // Once.
  void farewell(bool meets_again, std::chrono::milliseconds patience);
  // After a failure: waits until the others have had the time to hear of it and to write their flight logs,
  // because a launcher may end them when this process ends.
  void linger() const;
  // After a farewell that said so: it does not wait any longer.
  void give_up(std::chrono::milliseconds patience);
  // A rank for which a last meeting would wait in vain: the sentence, or "".
  std::string missing() const;
  void stop(std::chrono::milliseconds patience);

 private:
  struct Known {
    Engine* engine = nullptr;
    std::vector<int> members;
    std::string key;
    int unfinished = 0;   // operations of the group when it failed
    std::string failure;  // that the others have not heard of yet; "": none
  };
  struct Entry : Known {
    const GroupState* address = nullptr;
    std::weak_ptr<GroupState> group;
  };
  struct Open : Known {
    std::shared_ptr<GroupState> group;
  };
  std::vector<Open> open_groups() const;
  std::vector<int> members_of(const GroupState& group) const;
  std::shared_ptr<Heartbeat> heartbeat() const;
  void on_news(const News& news, bool found_here);
  void lose(const News& news);
  // True if the news speaks of this group.
  static bool depart(const Open& open, const News& news);
  std::string on_store_lost(const std::string& reason);
  void on_tick();
  void tell_failures();
  void compare_slow_calls(Heartbeat& watch);
  static std::uint64_t checksum_of(const Open& open);
  static std::string reached(const Open& open);
  int rank() const { return network_.membership()->rank; }
  // "rank 3 (host n7, pid 4711)", this one.
  std::string own_name() const;
  // Whether its process can be looked at from here.
  bool on_this_host(int rank) const;

  Network& network_;
  BlockingCalls blocking_;
  SlowCalls slow_calls_;
  std::atomic<std::uint64_t> checksum_{0};
  std::atomic<bool> comparable_{true};
  mutable std::mutex mutex_;  // all below
  std::shared_ptr<Heartbeat> heartbeat_;
  std::vector<Entry> groups_;
  std::deque<std::string> closed_;  // how far this rank took part in groups it has closed, the last ones
  std::string aborted_;             // what the rank that called MPI_Abort has said
  std::chrono::steady_clock::time_point aborted_at_{};
  News farewell_;
  std::deque<News> left_;  // of this generation, who left what: a group of that may not be open yet
  std::chrono::steady_clock::time_point notified_{};  // when this rank last published a failure
  std::atomic<bool> ending_{false};
  OrphanWatch orphan_;  // of the thread that looks around
};

}  // namespace mpi_gdr
