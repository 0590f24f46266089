// A group of ranks: its transport, its order of operations, its fate. Made and closed by Engine.
// group_issue.cpp: how calls become an operation; group.cpp: the rest.
//
// Threads. Issuing: any thread; operations of one group get their sequence numbers in the order of issue(),
// which must be the same on all ranks per channel. The queues of started operations belong to the holder of
// the progress role.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "collectives/planner.hpp"
#include "common/error.hpp"
#include "engine/calls.hpp"
#include "engine/operation.hpp"
#include "execution/device/device_parts.hpp"
#include "execution/device/gate.hpp"
#include "execution/device/stream_target.hpp"
#include "execution/scratch_pool.hpp"
#include "execution/simple_executions.hpp"
#include "transport/ipc/device_node.hpp"

namespace mpigdr {

class Engine;

struct IssueOptions {
  std::string name;                                 // for messages: "all_reduce"
  std::string detail;                               // for messages: "float32 count=1048576 op=sum"
  Channel channel = Channel::Collective;            // PointToPoint if all calls are messages
  std::optional<std::chrono::nanoseconds> timeout;  // else the group's
  // Owns the buffers; released after success by a waiter or a completer thread, leaked after a failure.
  std::shared_ptr<void> keepalive;
  // True: the progress thread carries the operation. False: the caller waits for it at once.
  bool background = true;
  // Of collectives on a device's memory, all calls on the same; null: on host memory. Borrowed. No staged
  // calls.
  const StreamTarget* stream = nullptr;
  // Of messages beside a device: they begin when it has been entered; null: at once.
  std::shared_ptr<Gate> gate;
  // Issued before this one, in the background; null: none. This one ends well only when that one has, too.
  OperationPtr join;
  // Told of the end of the operation, good or bad, by a completer thread.
  std::function<void(const Operation&)> on_finished;
  // For the flight log.
  std::string_view profiler_name;  // as torch's profiler calls it, without the backend: "_all_gather_base"
  TensorShapes inputs, outputs;
  // For the trace, if there is one.
  std::string dtype;            // of the tensors, as torch spells it: "float32"; empty: none
  std::uint64_t item_size = 1;  // bytes
};

class Group;

struct GroupOptions {
  std::string name;
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  int max_in_flight = 32;
  // Ranks compare their calls before they run them, see call_check.hpp. Equal on all ranks.
  bool check_calls = false;
  // Of the members on this rank's node, if they share any: all members where there is no topology.
  std::shared_ptr<const shm::NodeMemory> node;
  // Where the ranks are, equal on all of them; null: all on one node.
  std::shared_ptr<const Topology> topology;
  // For the flight log.
  bool is_default = false;   // torch's default group
  std::string uid;           // equal on all members, of no other group of the job
  std::vector<int> members;  // ranks of the world, by rank of the group; empty: 0..size-1
  // Told of the first failure, unless the other ranks know of it already. From any thread; must not wait.
  std::function<void(const Group&, const std::string& reason)> on_failed;
};

// Whether the other ranks of a group know why it has failed on this one.
enum class Others : bool { Unaware, Know };

class Group : public std::enable_shared_from_this<Group> {
 public:
  Group(Engine& engine, GroupOptions options, std::unique_ptr<Transport> transport,
        std::shared_ptr<Planner> planner);
  ~Group();

  const std::string& name() const { return options_.name; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int max_tag() const { return max_tag_; }
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
  std::chrono::nanoseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }

  // Starts the calls, all collectives or all messages, as ONE operation: they run together and finish
  // together. Does not block. Throws InvalidUsage for an illegal call, Aborted if the group has failed or is
  // closed; then nothing was sent. NoMemory or System, with the operation's name: the group has then failed
  // on this rank, since the others carry the operation out.
  OperationPtr issue(std::vector<Call> calls, IssueOptions options);

  // Records collectives on a device's memory into the graph that captures what `target.caller` holds, on the
  // first of `target.queues`, one after the other. They are no operation: no sequence number, no deadline,
  // and the caller keeps the buffers. All ranks replay what they have recorded in one order. Throws as
  // issue() does, and InvalidUsage for what cannot be replayed, then without having recorded anything.
  // `on_failure`: of the last such call, is called once the group has failed, by whoever notes that; must not
  // throw, nor take its time.
  void capture(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target,
               std::function<void()> on_failure);
  // Replays wait for nobody any more.
  void release_replays() const noexcept;

  // Throws InvalidUsage where issue() would for these calls; `name` as in IssueOptions.
  void check(const std::vector<Call>& calls, const std::string& name) const;

  // What issue() would run this collective with, "ring"; throws as check() does.
  std::string algorithm(const CollectiveSpec& spec) const;
  const std::shared_ptr<const shm::NodeMemory>& node() const { return options_.node; }  // null: no such
  // Where the ranks are; null: all on one node.
  const std::shared_ptr<const Topology>& topology() const { return options_.topology; }
  // How far the members reach into each other's memory, all of them.
  Reach reach() const { return options_.node && !options_.topology ? options_.node->reach() : Reach::None; }
  // From now on, what the devices of all ranks, or of the ranks of each node, share: collectives on their
  // memory may use it. Before any such collective, on all ranks alike; null: nothing, for after the last one.
  // What a failed group had is kept for good, since others may still read it; so is what graphs know.
  void share_devices(std::shared_ptr<const ipc::DeviceNode> node);
  // Graphs hold collectives in which this rank's device waits for others, whose processes share that device
  // by turns.
  bool replays_take_turns() const;
  // How messages travel: "shm" or "mpi"; "" where there is only one way.
  const char* message_path() const { return message_path_; }
  // What issue() would make of these calls now, for whoever shows them before they run. Of illegal calls, and
  // those of a group that has ended, nothing is known.
  struct Preview {
    std::string algorithm = "unknown";  // several: "ring+direct"; of messages "p2p"
    std::uint64_t bytes = 0;            // of this rank's contribution
    std::uint64_t sequence = 0;         // 0 for messages
  };
  Preview preview(const std::vector<Call>& calls, Channel channel, bool on_device = false) const;

  // Collectives issued so far on a channel.
  std::uint64_t sequence(Channel channel) const;

  // The first failure counts. Later operations throw it; running ones are ended by the engine.
  // `refused`: since this rank could not begin an operation that the others carry out.
  void fail_with(std::string_view reason, ErrorCode code = ErrorCode::Aborted, bool refused = false,
                 Others others = Others::Unaware) noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  std::string failure() const;
  // What kind of failure it was. Only after failed().
  ErrorCode failure_code() const;

  // What the user calls the group, for the flight log.
  void describe(const std::string& description);

  // A member will issue nothing more. Operations up to its last ones go on; each later collective, and each
  // message that still waits for that member kDepartureGrace after this, fails the group with `text`. Any
  // thread.
  struct Departure {
    int rank = -1;  // in the group
    std::string text;
    std::array<std::uint64_t, kChannelCount> sequences{};  // per channel, the first that it takes no part in
    std::chrono::steady_clock::time_point when;
    // Not in good order: all members hear of it and give the group up, so that messages between them are not
    // waited for either.
    bool failed = false;
  };
  void depart(Departure departure);

  // --- for Engine ---
  // Because of whom this operation, which has not ended, never will. With the progress role.
  std::optional<Departure> unreachable(const Operation& operation, Clock::time_point now) const;
  // No operation is issued from now on.
  void shut();
  // Issued and not finished.
  int outstanding() const { return outstanding_.load(std::memory_order_acquire); }
  void one_finished() { outstanding_.fetch_sub(1, std::memory_order_acq_rel); }

  // --- for the holder of the progress role (Engine) ---
  void enqueue(OperationPtr operation);
  bool any_waits() const;  // for its turn
  // Moves what may start now to `started`, in order.
  void start_ready(std::vector<OperationPtr>& started);
  // Of a failed group the transport is leaked: peers may still write to memory that it knows.
  void drop_transport();

 private:
  // `begin_here`: whether its first steps may be made at once, see Engine::carry().
  OperationPtr issue(std::vector<Call> calls, IssueOptions& options, OperationInfo& info, bool& begin_here);
  // Collectives of one channel issued so far. Equal on all ranks.
  struct Counters {
    std::uint64_t one_way = 0;  // one-way ones that send anything
    std::uint64_t slots = 0;    // those that used a slot of the node's memory
    std::uint64_t device_slots = 0;
  };
  // Counts on what the part adds.
  std::unique_ptr<Execution> make_part(const Call& call, Channel channel, std::uint64_t sequence,
                                       Counters& counters, std::string& algorithm);
  std::unique_ptr<Execution> make_collective(const CollectiveCall& call, Channel channel,
                                             std::uint64_t sequence, Counters& counters,
                                             std::string& algorithm);
  // The library has a collective that does just this, on host memory.
  bool has_native(const CollectiveSpec& spec) const {
    return spec.counts.empty() && transport_->has_native(spec.collective, spec.dtype, spec.op, spec.count);
  }
  // `on_device`: the buffers are a device's.
  Choice choose(const CollectiveSpec& spec, bool on_device = false) const;
  // The second stage of a StagedCall. For the holder of the progress role.
  std::unique_ptr<Execution> make_second(const CollectiveCall& call, Channel channel, std::uint64_t sequence);
  std::unique_ptr<Execution> run_schedule(const Plan& plan, const CollectiveCall& call, Channel channel,
                                          std::uint64_t sequence, bool acknowledged, std::uint64_t slot_use);
  // How far ranks reach into each other's memory in a call.
  Reach reach(bool on_device) const;
  Binding bind(const CollectiveCall& call, Channel channel, std::uint64_t sequence, bool acknowledged) const;
  // The parts of an operation on a device; their memory goes to `kept`.
  struct DeviceWork {
    std::vector<DevicePart> programs;
    std::vector<std::shared_ptr<void>> kept;
  };
  // Adds those of one call.
  void make_programs(const CollectiveCall& call, Channel channel, std::uint64_t sequence, Counters& counters,
                     const StreamTarget& target, std::string& algorithm, DeviceWork& work);
  void make_phases(const CollectiveCall& call, int leaders, Channel channel, std::uint64_t sequence,
                   Counters& counters, const StreamTarget& target, DeviceWork& work);
  std::shared_ptr<DeviceProgram> make_program(const CollectiveSpec& spec, const SchedulePtr& schedule,
                                              Binding binding, std::uint64_t sequence, Counters& counters,
                                              const StreamTarget& target, DeviceWork& work);
  // Whether the call runs in phases: its ranks share memory of their devices with those of their own node
  // only.
  bool in_phases(const CollectiveSpec& spec, const Algorithm& algorithm) const;
  // Throws unless the group shares the memory of the device that the call is for.
  void check_place(const CollectiveSpec& spec, const StreamTarget& target) const;
  // Submits them. If the device refuses, the group has failed: the others carry the operation out.
  void launch(Operation& operation, const DeviceWork& work, const StreamTarget& target);
  // Whether the sends of a call, one way or not, wait for their receivers; counts on.
  static bool is_acknowledged(bool one_way, const CollectiveSpec& spec, Counters& counters);
  void check(const Call& call) const;
  void check(const CollectiveSpec& spec) const;
  // Appends a barrier to `calls` now and then. Returns what all_to_alls_ of this
  // channel is once they have been accepted.
  std::uint64_t bound_all_to_all(std::vector<Call>& calls, Channel channel, bool on_device) const;
  void log_operation(OperationInfo& info, const std::vector<Call>& calls, const IssueOptions& options);
  std::unique_ptr<Execution> make_check(const std::vector<Call>& calls, const OperationInfo& info,
                                        std::string_view dtype) const;
  std::uint64_t tag_slots() const;

  Engine& engine_;
  const GroupOptions options_;
  std::unique_ptr<Transport> transport_;
  const int rank_, size_, max_tag_;
  const char* const message_path_;
  const std::shared_ptr<Planner> planner_;
  std::shared_ptr<ScratchPool> scratch_;
  const std::shared_ptr<FlightLog> flight_;  // null: off
  std::uint32_t flight_group_ = 0;
  std::atomic<std::chrono::nanoseconds> timeout_;

  mutable std::mutex issue_mutex_;  // sequence numbers, and their order into the engine
  bool shut_ = false;
  std::array<Counters, kChannelCount> counters_{};
  std::array<std::uint64_t, kChannelCount> all_to_alls_{};
  MessageTurns turns_;
  bool turns_taken_ = false;  // from the first message beside a device on; those before are posted in order
  std::shared_ptr<const ipc::DeviceNode> device_node_;  // written before it is read, see share_devices()
  // Once anything has been captured: the same, kept for good with the graphs.
  std::atomic<const ipc::DeviceNode*> captured_on_{nullptr};
  std::atomic<int> outstanding_{0};
  std::array<std::uint64_t, kChannelCount> next_sequence_{};
  std::map<std::tuple<bool, int, int>, std::uint64_t> messages_;  // issued, by (send, peer, tag)

  mutable std::mutex failure_mutex_;                  // failure_, departures_, on_failure_, told_node_
  std::shared_ptr<const ipc::DeviceNode> told_node_;  // device_node_
  std::function<void()> on_failure_;
  std::string failure_;
  ErrorCode failure_code_ = ErrorCode::Aborted;
  std::vector<Departure> departures_;
  std::atomic<bool> departed_{false};
  std::atomic<bool> failed_{false};

  // Holder of the progress role only. A window holds started operations in order, finished ones behind an
  // unfinished front included, so that the sequence numbers in flight span a bounded range: tags repeat after
  // it.
  struct Window {
    std::deque<OperationPtr> waiting, running;
  };
  std::array<Window, kChannelCount> windows_;
};

}  // namespace mpigdr
