// A group as the engine sees it; Group (group.hpp) issues operations. Any thread unless stated otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "engine/operation.hpp"
#include "engine/windows.hpp"
#include "transport/ipc/node_flags.hpp"

namespace mpi_gdr {

class GroupState;

struct GroupOptions {
  std::string name;
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  int max_in_flight = 32;
  // Memory shared by the members on this rank's node (without `topology`: by all members); may be null.
  std::shared_ptr<const shm::NodeMemory> node;
  std::shared_ptr<const Topology> topology;  // equal on all ranks; null: all on one node
  // As in GroupInfo; no members: 0..size-1.
  bool is_default = false;
  std::string uid;
  std::vector<int> members;
  // Measured by earlier jobs, equal on all members; the key under which this group's are kept, "": not kept.
  std::vector<RivalChoices::Report> choices;
  std::string choices_key;
  // Called at the first failure if Others::Unaware. Any thread, maybe under locks: must not wait or throw.
  std::function<void(const GroupState&, const std::string& reason)> on_failed;
};

// Whether the other ranks have been notified why the group failed here.
enum class Others : bool { Unaware, Notified };

// A member issues nothing more. Earlier operations continue; a later collective fails the group with `text`,
// and so does a message that needs the member one second after `when` and its own start.
struct Departure {
  int rank = -1;  // in the group
  std::string text;
  std::array<std::uint64_t, kChannelCount> sequences{};  // per channel, the first one without it
  std::chrono::steady_clock::time_point when;
  bool failed = false;  // after an error: every message fails, not only those that need this member
};

class GroupState : public std::enable_shared_from_this<GroupState> {
 public:
  virtual ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& choices_key() const { return options_.choices_key; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<const shm::NodeMemory>& node() const { return options_.node; }  // may be null

  // The first failure counts: later operations throw it, the engine ends running ones. `refused`: this rank
  // could not begin what other ranks run; notifies their devices even after an earlier failure.
  void fail_with(std::string_view reason, ErrorCode code = ErrorCode::Aborted, bool refused = false,
                 Others others = Others::Unaware) noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string failure() const;
  ErrorCode failure_code() const;  // valid after failed()
  // Called once, on the thread that calls fail_with() and may hold the group's locks: must not throw or wait.
  // Replaces the previous one. Dropped if the group has failed: check failed() afterwards.
  enum class FailureOf { Replays, Hooks, Streams };
  void on_failure(FailureOf what, std::function<void()> callback);
  bool failure_thrown() const { return failure_thrown_.load(std::memory_order_relaxed); }
  void note_failure_thrown() { failure_thrown_.store(true, std::memory_order_relaxed); }
  void depart(Departure departure);

  std::uint64_t sequence(Channel channel) const;  // collectives issued so far
  std::uint64_t history(Channel channel) const;   // CallRecord::history of the last collective; 0: none
  // The record of `sequence` or of a later call in its slot; none if not issued yet, or if the lock is taken.
  std::optional<CallRecord> called(Channel channel, std::uint64_t sequence) const;
  int outstanding() const { return outstanding_.load(std::memory_order_acquire); }  // issued and not ended

  // --- for Engine ---
  void one_finished() { outstanding_.fetch_sub(1, std::memory_order_acq_rel); }
  void shut();  // issue() throws from now on
  // --- with the progress role ---
  Windows& windows() { return windows_; }
  // Whether this collective is to be announced as slow; then the next one gets twice the time, up to a
  // quarter of its timeout. Lower ranks get less time: one announcement suffices.
  bool is_slow(const OperationInfo& info, Clock::time_point now) {
    if (now - info.issued < slow_after_ || info.sequences == 0) return false;
    slow_after_ = std::max(slow_after_, std::min(2 * slow_after_, (info.deadline - info.issued) / 4));
    return true;
  }
  // The departed rank that blocks this operation.
  std::optional<Departure> unreachable(const Operation& operation, Clock::time_point now) const;
  // Closes the transport; leaks that of a failed group, since peers may still write to its memory.
  void drop_transport();

 protected:
  GroupState(GroupOptions options, std::unique_ptr<Transport> transport, bool one_by_one);

  // The flags through which the ranks of the node learn that the group failed; null: none.
  enum class Notified { Devices, Library };
  void notify_on_failure(Notified whose, std::shared_ptr<const ipc::NodeFlags> node);
  const GroupOptions options_;
  std::unique_ptr<Transport> transport_;
  const int rank_, size_, max_tag_;
  std::atomic<int> outstanding_{0};

  mutable std::mutex issue_mutex_;  // next_sequence_, history_, records_, shut_, and the order of submission
  bool shut_ = false;
  std::array<std::uint64_t, kChannelCount> next_sequence_{};
  std::array<std::uint64_t, kChannelCount> history_{};  // see history()
  // Slots for the last kRecords collectives of a channel and the one being issued; with issue_mutex_.
  CallRecord& record(Channel channel, std::uint64_t sequence) {
    return records_[static_cast<std::size_t>(channel)][sequence % kRecords];
  }

 private:
  // Another rank lags by at most the window (32 by default) and 16 calls that wait for no rank.
  static constexpr std::uint64_t kRecords = 64;
  std::array<std::array<CallRecord, kRecords>, 2> records_;  // Channel::Collective, Channel::Accelerator
  mutable std::mutex failure_mutex_;                         // up to departures_
  std::array<std::shared_ptr<const ipc::NodeFlags>, 2> notified_;  // by Notified
  std::array<std::function<void()>, 3> on_failure_;                // by FailureOf
  std::string failure_;
  ErrorCode failure_code_ = ErrorCode::Aborted;
  std::vector<Departure> departures_;
  std::atomic<bool> departed_{false};
  std::atomic<bool> failed_{false}, failure_thrown_{false};
  Windows windows_;
  Clock::duration slow_after_;  // with the progress role
};

}  // namespace mpi_gdr
