// Turns calls into executions on host memory or device programs, by the planner's algorithms. With the
// group's issue_mutex_, except rival_report(), captured(), release_replays(), tags() and reach() of host
// memory: any thread. Second stages are made with the progress role.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/planner.hpp"
#include "engine/group_state.hpp"
#include "execution/device/device_parts.hpp"
#include "execution/device/stream_target.hpp"
#include "execution/scratch_pool.hpp"
#include "transport/ipc/device_node.hpp"
#include "transport/nccl/communicator.hpp"

namespace mpi_gdr {

struct Counters {             // of calls issued on one channel; equal on all ranks
  std::uint64_t one_way = 0;  // one-way calls with data
  std::uint64_t slots = 0;    // uses of slots of the node's memory
  std::uint64_t rivals = 0;   // calls that choose their algorithm when they begin
  std::uint64_t device_slots = 0;
  std::uint64_t nccl_slots = 0;   // uses of the communicator's flags
  std::uint64_t all_to_alls = 0;  // by messages
  std::uint64_t history = 0;      // the last CallRecord::history
};

struct DeviceWork {                       // of one operation
  std::shared_ptr<DeviceParts> programs;  // null: none
  std::vector<std::shared_ptr<void>> kept;
};

class ProgramFactory {
 public:
  struct Options {
    const GroupOptions& group;  // outlives it
    std::shared_ptr<Planner> planner;
    std::shared_ptr<ScratchPool> scratch;
    ExecutionObserver* rounds = nullptr;  // outlives all executions
    const Traffic* traffic = nullptr;     // the engine's; outlives all executions
  };
  // `transport`: used here for queries only; its executions belong to the role holder.
  ProgramFactory(Options options, Transport& transport);
  ~ProgramFactory();

  const SelectionRow& choose(const CollectiveSpec& spec, bool on_device = false) const;
  Reach reach(bool on_device = false) const;  // between ranks
  Reach reach(const CollectiveSpec& spec, bool on_device) const {
    if (!on_device || !by_library(spec)) return reach(on_device);
    return library_->node().size() == size_ ? Reach::Library : Reach::NodesLibrary;
  }
  // Whether NCCL transfers the data of this call inside a node.
  bool by_library(const CollectiveSpec& spec) const;
  const char* algorithm(const CollectiveSpec& spec, bool on_device) const {  // without phases
    return reach(spec, on_device) == Reach::Library ? "nccl" : choose(spec, on_device).algorithm->name;
  }

  // The numbers of a call. The make functions advance `counters` and set `algorithm`.
  struct Numbered {
    Channel channel;
    CallRecord call;  // empty for messages
    Counters& counters;
    std::string_view& algorithm;
  };
  std::unique_ptr<Execution> make_part(const Call& call, const Numbered& numbered);
  // Appends the call's programs to `work.programs`, which must not be null.
  void make_programs(const CollectiveCall& call, const Numbered& numbered, const StreamTarget& target,
                     DeviceWork& work);
  static bool barrier_is_due(const Counters& before, const Counters& now);
  const CollectiveTags& tags() const { return tags_; }

  struct Captured {  // see Group::capture()
    std::vector<std::pair<Plan, Binding>> programs;
    bool waits = false;  // for other ranks
  };
  Captured make_captured(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target);
  void record(const Captured& captured, const StreamTarget& target);
  std::vector<RivalChoices::Report> rival_report() const;
  // Whether a program that waits for other ranks has been recorded, and by NCCL. Any thread.
  bool captured() const { return captured_on_.load(std::memory_order_acquire) || captured_by_library(); }
  bool captured_by_library() const { return captured_by_.load(std::memory_order_acquire) != nullptr; }
  void release_replays() const noexcept;  // replays end, with undefined results; any thread

  // Exchange the argument with the one in use.
  void share_devices(std::shared_ptr<const ipc::DeviceNode>& node) { device_node_.swap(node); }
  void share_library(std::shared_ptr<nccl::Communicator>& communicator) { library_.swap(communicator); }

 private:
  bool has_native(const CollectiveSpec& spec) const {
    return spec.counts.empty() && transport_.has_native(spec.collective, spec.dtype, spec.op, spec.count);
  }
  // Null for an all_to_all on devices: its programs are made before any rank has another's counts.
  std::shared_ptr<const Topology> topology(const CollectiveSpec& spec, bool on_device) const;
  Plan plan(const CollectiveSpec& spec, bool on_device = false, bool by_host = false) const {
    return options_.planner->plan(spec, !on_device && has_native(spec), reach(spec, on_device),
                                  topology(spec, on_device), by_host);
  }
  std::unique_ptr<Execution> make_collective(const CollectiveCall& call, const Numbered& numbered);
  // An all_to_all in two levels, on a rank that shares its node.
  std::unique_ptr<Execution> make_by_nodes(const CollectiveCall& call, const Plan& first,
                                           const Numbered& numbered);
  // The second stage of a ChainedCall. With the progress role.
  std::unique_ptr<Execution> make_second(const CollectiveCall& call, Channel channel,
                                         const CallRecord& first);
  std::unique_ptr<Execution> run_schedule(const Plan& plan, const CollectiveCall& c, Channel channel,
                                          const CallRecord& call, bool acknowledged, std::uint64_t slot_use,
                                          const RivalChoices::Call& rivals = {});
  RivalChoices::Call rivals_of(const Plan& plan, const CollectiveSpec& spec, Counters& counters) const;
  // Whether the sends of a call wait for their receivers; advances `counters`.
  static bool is_acknowledged(bool one_way, const CollectiveSpec& spec, Counters& counters);
  Binding bind(const CollectiveCall& c, Channel channel, const CallRecord& call, bool acknowledged) const;
  std::shared_ptr<DeviceProgram> make_program(const Phase& phase, Binding binding, const Numbered& numbered,
                                              const StreamTarget& target, DeviceWork& work);
  // Throws if the group shares the memory of another device.
  void check_device(const Device& shared, const CollectiveSpec& spec, const StreamTarget& target) const;

  const Options options_;
  Transport& transport_;
  const int rank_, size_;
  const CollectiveTags tags_;
  // Null: only the table chooses. The group outlives its executions.
  const std::unique_ptr<RivalChoices> rivals_;
  std::shared_ptr<const ipc::DeviceNode> device_node_;        // see share_devices()
  std::shared_ptr<nccl::Communicator> library_;               // see share_library()
  std::atomic<const ipc::DeviceNode*> captured_on_{nullptr};  // never freed, as graphs use both
  std::atomic<nccl::Communicator*> captured_by_{nullptr};
};

}  // namespace mpi_gdr
