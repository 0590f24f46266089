// Observes the operations of this process: flight log, trace, check of calls (diagnostics/). Members must not
// call the transport; the execution that before() returns may. Only group_failed() and failed_elsewhere() may
// block, to write a file.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "engine/calls.hpp"

namespace mpi_gdr {

class ExecutionObserver;
class Operation;
using Clock = std::chrono::steady_clock;

struct GroupInfo {
  std::string name;          // c10d's name
  std::string description;   // the user's name; may be empty
  bool is_default = false;   // torch's default group
  std::string uid;           // equal on all members, unique in the job
  std::vector<int> members;  // world ranks, by rank of the group
};

class Observer {
 public:
  virtual ~Observer() = default;

  virtual std::uint32_t opened(const GroupInfo&) { return 0; }  // any thread; returns a number for the group
  virtual void describe(std::uint32_t group, const std::string& description) {}

  // Issuing thread. Returns null, or an execution that runs before a collective's parts and uses `tag`.
  virtual std::unique_ptr<Execution> before(const Operation&, const std::vector<Call>&, Transport&, int tag) {
    return nullptr;
  }
  // True: a group runs one operation at a time, because the executions from before() complete in different
  // orders on the ranks.
  virtual bool one_by_one() const { return false; }

  // Issuing thread, in the group's order of issue. Returns a number for the operation.
  virtual std::uint64_t issued(std::uint32_t group, const Operation&, const std::vector<Call>&) { return 0; }
  virtual void refused(const Operation&, std::uint64_t number) {}  // issuing thread: the engine refused it

  // The next three need the progress role. The result of started() replaces the operation's number.
  virtual std::uint64_t started(const Operation&, std::uint64_t number, Clock::time_point now) {
    return number;
  }
  virtual void chosen(const Operation&, std::uint64_t number) {}  // algorithm() has changed
  virtual void entered(std::uint64_t number) {}                   // later rounds belong to this operation
  // Any thread. Returns an observer or null; the engine calls the observer with the progress role.
  virtual ExecutionObserver* rounds() { return nullptr; }

  // The members below may be called on any thread.
  // Called for the operation that is the first to fail its group. `pending`: awaited ranks; null: unknown.
  virtual void failed(const Operation&, std::uint64_t number, Clock::time_point now, const std::string& error,
                      const std::vector<int>* pending) {}
  // Called before other threads can see that the operation has ended. Several threads may call
  // it for one operation; only the first call counts. `error`: null after success.
  virtual void ended(const Operation&, std::uint64_t number, Clock::time_point now,
                     const std::string* error) {}
  // Called once per operation, when other threads can see that it has ended.
  virtual void settled(const Operation&, std::uint64_t number, Clock::time_point now, bool failed) {}
  // A group has failed on another rank: a launcher may end this process any moment.
  virtual void failed_elsewhere(const std::string& reason) {}
  // Returns a suffix of the message: "; flight log: /tmp/...".
  virtual std::string group_failed(const std::string& reason) { return ""; }
};

// Element i of a Groups or Numbers is the number that observer i returned for the group or operation.
class Observers {
 public:
  static constexpr std::size_t kMost = 3;
  using Groups = std::array<std::uint32_t, kMost>;
  using Numbers = std::array<std::atomic<std::uint64_t>, kMost>;

  explicit Observers(std::vector<std::shared_ptr<Observer>> list) : list_(std::move(list)) {
    MPI_GDR_CHECK(list_.size() <= kMost);
  }
  // Calls call(observer, element) with the observer's element of `kept`, a Groups or Numbers.
  template <typename Kept, typename Function>
  void each(Kept& kept, Function&& call) const {
    for (std::size_t i = 0; i < list_.size(); ++i) call(*list_[i], kept[i]);
  }
  bool one_by_one() const {
    return std::any_of(list_.begin(), list_.end(), [](const auto& o) { return o->one_by_one(); });
  }
  ExecutionObserver* rounds() const {
    for (const auto& observer : list_)
      if (ExecutionObserver* const rounds = observer->rounds()) return rounds;
    return nullptr;
  }
  void failed_elsewhere(const std::string& reason) const {
    for (const auto& observer : list_) observer->failed_elsewhere(reason);
  }
  std::string group_failed(const std::string& reason) const {
    std::string added;
    for (const auto& observer : list_) added += observer->group_failed(reason);
    return added;
  }

 private:
  const std::vector<std::shared_ptr<Observer>> list_;
};

}  // namespace mpi_gdr
