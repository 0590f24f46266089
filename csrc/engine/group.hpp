// A group of ranks as its callers see it: turns calls into operations of the engine. Any thread. All ranks
// issue the collectives of a channel in the same order. Engine::close() ends it.
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
  Channel channel = Channel::Collective;            // ignored for messages
  std::optional<std::chrono::nanoseconds> timeout;  // default: the group's
  // Owns the buffers: released after success, never on the progress thread; leaked after a failure.
  std::shared_ptr<void> keepalive;
  bool background = true;  // true: the progress thread ensures progress; false: the caller waits at once
  // Collectives on a device's memory, none chained; null: host memory. Borrowed.
  const StreamTarget* stream = nullptr;
  std::shared_ptr<Gate> gate;  // messages of device tensors begin once it is entered; null: at once
  // Issued before, in the background: this operation succeeds only if that one does. May be null.
  OperationPtr join;
  // Called on a completer thread when the operation completes or fails; not if the engine refuses it.
  std::function<void(const Operation&)> on_finished;
  // The same on the thread that ends it, even the progress thread: must be short and not throw.
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
  void describe(const std::string& description);  // the user's name, for observers

  // Starts the calls, all collectives or all messages, as ONE operation: they complete together. Blocks only
  // in calls of a device's runtime. Throws, before anything is sent, InvalidUsage for an illegal call or a
  // closed group and Aborted if the group has failed or the engine was shut down; with NoMemory, System or
  // Internal the group fails: the other ranks run the operation.
  OperationPtr issue(std::vector<Call> calls, IssueOptions&& options);

  // Records collectives on a device's memory, one after the other, on the first of `target.queues` into the
  // graph that captures `target.caller`. No operation: no sequence number, no deadline, the caller owns the
  // buffers. All ranks must replay in the same order. Throws as issue() does, and InvalidUsage for calls that
  // cannot be replayed: nothing is recorded. `on_failure`: GroupState::on_failure(); the last one counts.
  void capture(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target,
               std::function<void()> on_failure);
  // From now on replays wait for no other rank; their results are undefined.
  void release_replays() const noexcept { programs_.release_replays(); }
  bool captured_by_library() const { return programs_.captured_by_library(); }  // by NCCL; any thread

  // Throws the InvalidUsage that issue() would throw for these calls; `name` as in IssueOptions.
  void check(const std::vector<Call>& calls, std::string_view name) const;
  // The algorithm issue() would use: "ring". Throws as check() does, and if the group is closed or failed.
  std::string algorithm(const CollectiveSpec& spec) const;
  std::vector<RivalChoices::Report> rival_report() const { return programs_.rival_report(); }
  // A forecast of issue(); the defaults for illegal calls and for a group that has ended.
  struct Preview {
    std::string algorithm = "unknown";  // several: "ring+zero_copy"; messages: "p2p"
    std::uint64_t bytes = 0;            // this rank's contribution
    std::uint64_t sequence = 0;         // 0 for messages
  };
  Preview preview(const std::vector<Call>& calls, Channel channel, bool on_device = false) const;

  const std::shared_ptr<const Topology>& topology() const { return options_.topology; }
  Reach reach() const { return topology() ? Reach::None : programs_.reach(); }  // between all members
  const char* message_path() const { return message_path_; }  // "shm" or "mpi"; "": there is only one way
  const Transport& library_transport() const { return transport_->library(); }  // not after Engine::close()
  // Memory shared by the devices of all ranks, or of the ranks of each node. Called on all ranks alike before
  // the first collective on a device's memory; null after the last one. The memory is never freed if the
  // group has failed, since other ranks may still read it, or if graphs use it.
  void share_devices(std::shared_ptr<const ipc::DeviceNode> node);
  // As share_devices(), for the NCCL communicator of the node's ranks; aborts it if the group has failed.
  void share_library(std::shared_ptr<nccl::Communicator> communicator);
  // Whether NCCL transfers the data of these calls inside a node.
  bool by_library(const std::vector<Call>& calls) const;

 private:
  struct Issue {              // belongs to the issuing thread
    std::vector<Call> calls;  // a barrier may be appended
    IssueOptions& options;
    IssuedInfo info = {};
    Counters counters = {};  // replace the group's unless the operation is refused
    std::uint64_t largest_buffer = 0;
    std::vector<Operation::Part> parts = {};
    DeviceWork device = {};
    bool begin_here = false;  // see Engine::carry()
  };
  // All with issue_mutex_; shape() without.
  OperationPtr issue_locked(Issue& issue);
  void make_parts(Issue& issue);
  OperationPtr make_operation(Issue& issue);
  void notify_observers(Operation& operation, const std::vector<Call>& calls);
  // Submits the device programs. If the device refuses, the group fails: the other ranks run the operation.
  void launch(Operation& operation, const DeviceWork& work, const StreamTarget& target);
  GroupShape shape() const { return {options_.name, rank_, size_, max_tag_}; }
  void check_open(std::string_view operation) const;

  Engine& engine_;
  Observers::Groups observed_{};
  const char* const message_path_;
  std::atomic<std::chrono::nanoseconds> timeout_;
  // With issue_mutex_, except what ProgramFactory allows to any thread:
  ProgramFactory programs_;
  std::array<Counters, kChannelCount> counters_{};
  MessageTurns turns_;
  bool turns_taken_ = false;  // since the first message with a gate; earlier ones are posted as issued
};

}  // namespace mpi_gdr
