// What the engine knows of a group: its operations that have not ended, and whether it has failed. Group
// (group.hpp) adds the issue of operations. Threads: any, but where said otherwise.
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
#include "transport/ipc/device_node.hpp"

namespace mpi_gdr {

class GroupState;

struct GroupOptions {
  std::string name;
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  int max_in_flight = 32;
  // Of the members on this rank's node, if they share any: all members where there is no topology.
  std::shared_ptr<const shm::NodeMemory> node;
  // Where the ranks are, equal on all of them; null: all on one node.
  std::shared_ptr<const Topology> topology;
  // For observers, as in GroupInfo. Without members: 0..size-1.
  bool is_default = false;
  std::string uid;
  std::vector<int> members;
  // What earlier jobs have measured, equal on all members; the key of what this group measures, "": not kept.
  std::vector<RivalChoices::Report> choices;
  std::string choices_key;
  // Called at the first failure, unless the other ranks know of it. On any thread; must not wait.
  std::function<void(const GroupState&, const std::string& reason)> on_failed;
};

// Whether the other ranks of a group know why it has failed on this one.
enum class Others : bool { Unaware, Know };

// A member will issue nothing more. Operations up to its last ones go on; each later collective, and each
// message that still waits for that member a second after this, fails the group with `text`.
struct Departure {
  int rank = -1;  // in the group
  std::string text;
  std::array<std::uint64_t, kChannelCount> sequences{};  // per channel, the first that it takes no part in
  std::chrono::steady_clock::time_point when;
  // Not in good order: all members give the group up, and wait for no message in it.
  bool failed = false;
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
  const std::shared_ptr<const shm::NodeMemory>& node() const { return options_.node; }  // null: no such

  // The first failure counts. Later operations throw it; running ones are ended by the engine.
  // `refused`: since this rank could not begin an operation that the others carry out.
  void fail_with(std::string_view reason, ErrorCode code = ErrorCode::Aborted, bool refused = false,
                 Others others = Others::Unaware) noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string failure() const;
  ErrorCode failure_code() const;  // after failed()
  // Called once, on the thread that notes the failure; must not throw, nor wait. Replaces the one before.
  enum class FailureOf { Replays, Hooks };
  void on_failure(FailureOf what, std::function<void()> callback);
  // The program has caught an exception of the failure.
  bool failure_thrown() const { return failure_thrown_.load(std::memory_order_relaxed); }
  void note_failure_thrown() { failure_thrown_.store(true, std::memory_order_relaxed); }
  void depart(Departure departure);

  // Collectives issued so far on a channel.
  std::uint64_t sequence(Channel channel) const;
  // CallRecord::history of the last of them; 0: none.
  std::uint64_t history(Channel channel) const;
  // The call `sequence`, or a later one in its place; nothing: not issued yet, or just now. Does not wait.
  std::optional<CallRecord> called(Channel channel, std::uint64_t sequence) const;
  // Issued and not finished.
  int outstanding() const { return outstanding_.load(std::memory_order_acquire); }

  // --- for Engine ---
  void one_finished() { outstanding_.fetch_sub(1, std::memory_order_acq_rel); }
  // No operation is issued from now on.
  void shut();
  // These three with the progress role.
  Windows& windows() { return windows_; }
  // Whether a collective has been outstanding for so long that it is to be announced. If so, the next one has
  // twice that time, up to a quarter of its timeout. Lower ranks have less: one announcement is enough.
  bool is_slow(const OperationInfo& info, Clock::time_point now) {
    if (now - info.issued < slow_after_ || info.sequences == 0) return false;
    slow_after_ = std::max(slow_after_, std::min(2 * slow_after_, (info.deadline - info.issued) / 4));
    return true;
  }
  // The departed rank that blocks this operation.
  std::optional<Departure> unreachable(const Operation& operation, Clock::time_point now) const;
  // Of a failed group the transport is leaked: peers may still write to memory that it knows.
  void drop_transport();

 protected:
  GroupState(GroupOptions options, std::unique_ptr<Transport> transport, bool one_by_one);

  // Devices that hear of a failure of the group; null: none.
  void tell_of_failure(std::shared_ptr<const ipc::DeviceNode> node);
  const GroupOptions options_;
  std::unique_ptr<Transport> transport_;
  const int rank_, size_, max_tag_;
  std::atomic<int> outstanding_{0};

  mutable std::mutex issue_mutex_;  // sequence numbers, and their order into the engine
  bool shut_ = false;
  std::array<std::uint64_t, kChannelCount> next_sequence_{};
  std::array<std::uint64_t, kChannelCount> history_{};  // CallRecord::history of the last collective
  // Of the last kRecords collectives of a channel, and of what is being issued; with issue_mutex_.
  CallRecord& record(Channel channel, std::uint64_t sequence) {
    return records_[static_cast<std::size_t>(channel)][sequence % kRecords];
  }

 private:
  // As far as another rank can be behind: the window, and 16 calls that wait for no rank.
  static constexpr std::uint64_t kRecords = 64;
  std::array<std::array<CallRecord, kRecords>, 2> records_;  // Channel::Collective, Channel::Accelerator
  mutable std::mutex failure_mutex_;                         // all up to departures_
  std::shared_ptr<const ipc::DeviceNode> notified_node_;
  std::array<std::function<void()>, 2> on_failure_;  // by FailureOf
  std::string failure_;
  ErrorCode failure_code_ = ErrorCode::Aborted;
  std::vector<Departure> departures_;
  std::atomic<bool> departed_{false};
  std::atomic<bool> failed_{false}, failure_thrown_{false};
  Windows windows_;
  Clock::duration slow_after_;  // with the progress role
};

}  // namespace mpi_gdr
