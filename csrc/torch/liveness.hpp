// The groups of this process, who is in them, and what happens to them when a rank is lost or leaves
// (bootstrap/heartbeat finds out).
//
// A member whose process has ended, or that is silent for too long: every group that has it fails, with a
// sentence that names it; groups without it go on. A member that leaves says how far it took part in each
// group: later operations of those groups fail, earlier ones may still end well.
//
// Threads: all members from any thread; begin() and stop() from one at a time. No lock is held while a peer,
// the store or the engine is waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/heartbeat.hpp"
#include "engine/engine.hpp"

namespace mpigdr::torch_binding {

class Liveness {
 public:
  // Watches the ranks of mpi::processes() over this store, from now on. `prefix` of the keys: unique per
  // generation. MPI is initialised.
  void begin(const std::string& prefix, std::function<std::unique_ptr<KvStore>()> connect);

  // `members` are torch's global ranks, by rank in the group; `key` is equal on all of them and used once.
  void opened(Engine& engine, const std::shared_ptr<Group>& group, std::vector<int> members, std::string key);
  void closed(const Group& group);

  // What has become of one of these ranks, or "".
  // `or_left`: also of those that merely left, and so will not come to anything new.
  std::string lost_among(const std::vector<int>& ranks, bool or_left = false) const;
  // The same of the members of a group that has met an error, with a look at the processes of this host now.
  std::string explain(const Group& group) const;
  std::string explain(const std::vector<int>& members) const;

  // While it lives, a call that cannot be interrupted waits for these ranks (none: for the store of the job,
  // which rank 0 may serve). If one of them is lost, or at the deadline, it may never return: after a grace
  // of kBlockedGrace the process ends with a message.
  class Blocking {
   public:
    Blocking(Liveness& liveness, std::string what, std::vector<int> ranks,
             Clock::time_point deadline = Clock::time_point::max());
    ~Blocking();
    Blocking(const Blocking&) = delete;
    Blocking& operator=(const Blocking&) = delete;

   private:
    friend class Liveness;
    Liveness& liveness_;
    const std::string what_;
    const std::vector<int> ranks_;
    const Clock::time_point deadline_;
    std::chrono::steady_clock::time_point lost_{};
  };

  // This process ends: from now on news changes no group any more. `why` completes "rank 3 has left the job:
  // ". The sentence is made now and sent by farewell().
  void end(const std::string& why);
  // Sends it, waiting at most so long. `meets_again`: this rank waits for the others before it ends MPI.
  // Once.
  void farewell(bool meets_again, std::chrono::milliseconds patience);
  // After a farewell that said so: it does not wait any longer.
  void give_up(std::chrono::milliseconds patience);
  // A rank for which a last meeting would wait in vain: the sentence, or "".
  std::string missing() const;
  void stop(std::chrono::milliseconds patience);

 private:
  struct Entry {
    Engine* engine = nullptr;
    const Group* address = nullptr;
    std::weak_ptr<Group> group;
    std::vector<int> members;
    std::string key;
  };
  struct Open {
    Engine* engine;
    std::shared_ptr<Group> group;
    std::vector<int> members;
    std::string key;
  };
  std::vector<Open> open_groups() const;
  std::shared_ptr<Heartbeat> heartbeat() const;
  void on_news(const News& news);
  static void depart(const Open& open, const News& news);
  void on_store_lost(const std::string& reason);
  void on_tick();
  static std::string missed_by(const Blocking& call, const Heartbeat& heartbeat, Clock::time_point now);
  std::string reached(Engine& engine, const Group& group, const std::string& key) const;

  mutable std::mutex mutex_;  // all below
  std::shared_ptr<Heartbeat> heartbeat_;
  std::vector<Entry> groups_;
  std::deque<std::string> closed_;  // how far this rank took part in groups it has closed, the last ones
  std::list<Blocking*> blocking_;
  News farewell_;
  std::deque<News> left_;  // goodbyes of this generation: a group that they speak of may not be open yet
  std::atomic<bool> ending_{false};
};

}  // namespace mpigdr::torch_binding
