// A group of ranks as its callers see it: calls become operations of the engine. Closed by Engine::close().
//
// Threads: any. The order of issue() must be the same on all ranks per channel.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/group_state.hpp"
#include "engine/program_factory.hpp"
#include "execution/device/gate.hpp"

namespace mpi_gdr {

class Engine;

struct IssueOptions : Description {
  Channel channel = Channel::Collective;            // PointToPoint if all calls are messages
  std::optional<std::chrono::nanoseconds> timeout;  // else the group's
  // Owns the buffers; released after success by a waiter or a completer thread, leaked after a failure.
  std::shared_ptr<void> keepalive;
  // True: the progress thread carries the operation. False: the caller waits for it at once.
  bool background = true;
  // Of collectives on one device's memory; null: host memory. Borrowed. No chained calls.
  const StreamTarget* stream = nullptr;
  // Of messages beside a device: they begin when it has been entered; null: at once.
  std::shared_ptr<Gate> gate;
  // Issued before this one, in the background; null: none. This one ends well only when that one has, too.
  OperationPtr join;
  // Called on a completer thread when the operation completes or fails.
  std::function<void(const Operation&)> on_finished;
  // The same on the thread that ends it, at once: it must be short and not throw.
  std::function<void(const Operation&)> on_ended;
};

class Group : public GroupState {
 public:
  // `engine` outlives it.
  Group(Engine& engine, GroupOptions options, std::unique_ptr<Transport> transport,
        std::shared_ptr<Planner> planner);

  int max_tag() const { return max_tag_; }
  Engine& engine() const { return engine_; }
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
  std::chrono::nanoseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  // What the user calls the group, for observers.
  void describe(const std::string& description);

  // Starts the calls, all collectives or all messages, as ONE operation: they run and finish together. Does
  // not block. Throws InvalidUsage for an illegal call, Aborted if the group has failed or is closed: nothing
  // was sent. NoMemory or System: the group has then failed on this rank, since the others run the operation.
  OperationPtr issue(std::vector<Call> calls, IssueOptions&& options);

  // Records collectives on a device's memory into the graph that captures what `target.caller` holds, on the
  // first of `target.queues`, one after the other. They are no operation: no sequence number, no deadline,
  // and the caller keeps the buffers. All ranks replay what they have recorded in one order. Throws as
  // issue() does, and InvalidUsage, having recorded nothing, for what cannot be replayed. `on_failure`, of
  // the last such call: GroupState::on_failure().
  void capture(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target,
               std::function<void()> on_failure);
  // Replays wait for nobody any more.
  void release_replays() const noexcept;

  // Throws InvalidUsage where issue() would for these calls; `name` as in IssueOptions.
  void check(const std::vector<Call>& calls, const std::string& name) const;
  // What issue() would run this collective with, "ring"; throws as check() does.
  std::string algorithm(const CollectiveSpec& spec) const;
  // What has been measured so far, see RivalChoices.
  std::vector<RivalChoices::Report> rival_report() const { return programs_.rival_report(); }
  // What issue() would make of these calls now; nothing of illegal ones, or once the group has ended.
  struct Preview {
    std::string algorithm = "unknown";  // several: "ring+zero_copy"; of messages "p2p"
    std::uint64_t bytes = 0;            // of this rank's contribution
    std::uint64_t sequence = 0;         // 0 for messages
  };
  Preview preview(const std::vector<Call>& calls, Channel channel, bool on_device = false) const;

  // Where the ranks are; null: all on one node.
  const std::shared_ptr<const Topology>& topology() const { return options_.topology; }
  // How far the members reach into each other's memory, all of them.
  Reach reach() const { return topology() ? Reach::None : programs_.reach(); }
  // How messages travel: "shm" or "mpi"; "" where there is only one way.
  const char* message_path() const { return message_path_; }
  // Of a group that is not closed.
  const Transport& library_transport() const { return transport_->library(); }
  // What the devices of all ranks, or of the ranks of each node, share, for collectives on their memory:
  // before the first of them, on all ranks alike; null: after the last one. What a failed group had is kept
  // for good, since others may still read it; so is what graphs know.
  void share_devices(std::shared_ptr<const ipc::DeviceNode> node);

 private:
  // Calls on their way to an operation, resolved once. Of the issuing thread.
  struct Issue {
    std::vector<Call> calls;  // may get a barrier behind them
    IssueOptions& options;
    OperationInfo info = {};  // until the operation has it
    Counters counters = {};   // what those of the group become, if nothing refuses the operation
    std::uint64_t largest_buffer = 0;
    std::vector<Operation::Part> parts = {};
    DeviceWork device = {};
    bool begin_here = false;  // whether its first steps may be made at once, see Engine::carry()
  };
  // These four with issue_mutex_.
  OperationPtr issue_locked(Issue& issue);
  void make_parts(Issue& issue);
  OperationPtr make_operation(Issue& issue);
  void tell_observers(Operation& operation, const std::vector<Call>& calls);
  // Submits them. If the device refuses, the group has failed: the others carry the operation out.
  void launch(Operation& operation, const DeviceWork& work, const StreamTarget& target);
  GroupShape shape() const { return {options_.name, rank_, size_, max_tag_}; }
  void check_open(const std::string& operation) const;

  Engine& engine_;
  Observers::Groups observed_{};
  const char* const message_path_;
  std::atomic<std::chrono::nanoseconds> timeout_;
  // With issue_mutex_:
  ProgramFactory programs_;
  std::array<Counters, kChannelCount> counters_{};
  MessageTurns turns_;
  bool turns_taken_ = false;  // from the first message beside a device on; those before are posted in order
};

}  // namespace mpi_gdr
