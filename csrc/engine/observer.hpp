// Observers of the operations of this process: the flight log, the trace, the check of calls (diagnostics/).
//
// Threads: each member says which. None waits or calls the transport, but for what before() returns, and
// group_failed() and failed_elsewhere(), which may wait for a file.
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
  std::string name;          // c10d's
  std::string description;   // what the user calls it; empty: not known
  bool is_default = false;   // torch's default group
  std::string uid;           // equal on all members, of no other group of the job
  std::vector<int> members;  // ranks of the world, by rank of the group
};

class Observer {
 public:
  virtual ~Observer() = default;

  // A group is made; the result stands for it below.
  virtual std::uint32_t opened(const GroupInfo&) { return 0; }
  virtual void describe(std::uint32_t group, const std::string& description) {}

  // Runs before the parts of a collective, with messages of this tag; null: nothing.
  virtual std::unique_ptr<Execution> before(const Operation&, const std::vector<Call>&, Transport&, int tag) {
    return nullptr;
  }
  // What before() returns ends in different orders on different ranks: operations run one by one.
  virtual bool one_by_one() const { return false; }

  // The issuing thread, in the group's order of issue. The result is the operation's number below.
  virtual std::uint64_t issued(std::uint32_t group, const Operation&, const std::vector<Call>&) { return 0; }
  // The engine did not take it.
  virtual void refused(const Operation&, std::uint64_t number) {}

  // These four with the progress role. The result of started() is the operation's number from now on.
  virtual std::uint64_t started(const Operation&, std::uint64_t number, Clock::time_point now) {
    return number;
  }
  // Operation::algorithm() says now what runs.
  virtual void chosen(const Operation&, std::uint64_t number) {}
  // What rounds() is told of from now on belongs to this operation.
  virtual void entered(std::uint64_t number) {}
  virtual ExecutionObserver* rounds() { return nullptr; }

  // Any thread, all that follow. It is the first failure of its group. `pending`: awaited ranks; null: not
  // known.
  virtual void failed(const Operation&, std::uint64_t number, Clock::time_point now, const std::string& error,
                      const std::vector<int>* pending) {}
  // Before others see that it has ended; the first call counts. `error`: null if all is well.
  virtual void ended(const Operation&, std::uint64_t number, Clock::time_point now,
                     const std::string* error) {}
  // It has ended so. Once: also where two threads would end it.
  virtual void settled(const Operation&, std::uint64_t number, Clock::time_point now, bool failed) {}
  // A group has failed on another rank, and a launcher may end this process any moment.
  virtual void failed_elsewhere(const std::string& reason) {}
  // The result is added to the message: "; flight log: /tmp/...".
  virtual std::string group_failed(const std::string& reason) { return ""; }
};

// All of them. What each has returned for a group or an operation is kept in the order of the list.
class Observers {
 public:
  static constexpr std::size_t kMost = 3;
  using Groups = std::array<std::uint32_t, kMost>;
  using Numbers = std::array<std::atomic<std::uint64_t>, kMost>;

  explicit Observers(std::vector<std::shared_ptr<Observer>> list) : list_(std::move(list)) {
    MPI_GDR_CHECK(list_.size() <= kMost);
  }
  // Calls tell(observer, element) with the element of `kept`, Groups or Numbers, that is the observer's.
  template <typename Kept, typename Tell>
  void each(Kept& kept, Tell&& tell) const {
    for (std::size_t i = 0; i < list_.size(); ++i) tell(*list_[i], kept[i]);
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
