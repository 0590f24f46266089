// From a call of a group to what runs it: executions on host memory (program_factory.cpp), programs of a
// device (device_programs.cpp). The algorithm is the planner's.
//
// Threads: what counts or makes programs, with the group's order of issue locked; the rest from any thread.
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

namespace mpi_gdr {

// Collectives of one channel issued so far. Equal on all ranks.
struct Counters {
  std::uint64_t one_way = 0;  // one-way ones that send anything
  std::uint64_t slots = 0;    // those that used a slot of the node's memory
  std::uint64_t rivals = 0;   // those that chose what they run when they began
  std::uint64_t device_slots = 0;
  std::uint64_t all_to_alls = 0;  // by messages
  std::uint64_t history = 0;      // CallRecord::history of the last one
};

// The programs of an operation on a device, and their memory.
struct DeviceWork {
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
    const Traffic* traffic = nullptr;     // likewise, of the engine
  };
  // The transport and what it makes are used by the same thread at a time.
  ProgramFactory(Options options, Transport& transport);
  ~ProgramFactory();

  // `on_device`: the buffers are a device's.
  const SelectionRow& choose(const CollectiveSpec& spec, bool on_device = false) const;
  // How far ranks reach into each other's memory in a call.
  Reach reach(bool on_device = false) const;

  // Numbers of one call. All of them count on what they add to `counters`, and say which algorithm.
  struct Numbered {
    Channel channel;
    CallRecord call;  // of a message: nothing
    Counters& counters;
  };
  std::unique_ptr<Execution> make_part(const Call& call, const Numbered& numbered, std::string& algorithm);
  // Adds the programs of the call to those of `work`, which it has.
  void make_programs(const CollectiveCall& call, const Numbered& numbered, const StreamTarget& target,
                     std::string& algorithm, DeviceWork& work);
  // Whether a barrier is to follow what has been counted since `before`.
  static bool barrier_is_due(const Counters& before, const Counters& now);
  const CollectiveTags& tags() const { return tags_; }

  // What can be recorded into a graph, see Group::capture().
  struct Captured {
    std::vector<std::pair<Plan, Binding>> programs;
    bool waits = false;  // for other ranks
  };
  // Throws InvalidUsage, naming the operation, for what cannot be replayed.
  Captured make_captured(const std::vector<Call>& calls, const std::string& name, const StreamTarget& target);
  void record(const Captured& captured, const StreamTarget& target);
  std::vector<RivalChoices::Report> rival_report() const;  // any thread
  // Once anything that waits has been recorded; null before.
  const ipc::DeviceNode* captured_on() const { return captured_on_.load(std::memory_order_acquire); }

  // See Group::share_devices(). Returns the one before.
  std::shared_ptr<const ipc::DeviceNode> share_devices(std::shared_ptr<const ipc::DeviceNode> node);
  static void keep_for_good(std::shared_ptr<const ipc::DeviceNode> node);

 private:
  // The library has a collective that does just this, on host memory.
  bool has_native(const CollectiveSpec& spec) const {
    return spec.counts.empty() && transport_.has_native(spec.collective, spec.dtype, spec.op, spec.count);
  }
  // The group's. None for an all_to_all of devices, whose programs are made before any rank has the counts of
  // another: it goes from rank to rank.
  std::shared_ptr<const Topology> topology(const CollectiveSpec& spec, bool on_device) const;
  Plan plan(const CollectiveSpec& spec, bool on_device = false, bool by_host = false) const {
    return options_.planner->plan(spec, !on_device && has_native(spec), reach(on_device),
                                  topology(spec, on_device), by_host);
  }
  std::unique_ptr<Execution> make_collective(const CollectiveCall& call, const Numbered& numbered,
                                             std::string& algorithm);
  // An all_to_all in two levels, of a rank that is not alone on its node.
  std::unique_ptr<Execution> make_by_nodes(const CollectiveCall& call, const Plan& first,
                                           const Numbered& numbered);
  // The second stage of a ChainedCall. For the holder of the progress role.
  std::unique_ptr<Execution> make_second(const CollectiveCall& call, Channel channel,
                                         const CallRecord& first);
  std::unique_ptr<Execution> run_schedule(const Plan& plan, const CollectiveCall& c, Channel channel,
                                          const CallRecord& call, bool acknowledged, std::uint64_t slot_use,
                                          const RivalChoices::Call& rivals = {});
  // Counts on.
  RivalChoices::Call rivals_of(const Plan& plan, const CollectiveSpec& spec, Counters& counters) const;
  // Whether the sends of a call, one way or not, wait for their receivers; counts on.
  static bool is_acknowledged(bool one_way, const CollectiveSpec& spec, Counters& counters);
  Binding bind(const CollectiveCall& c, Channel channel, const CallRecord& call, bool acknowledged) const;
  std::shared_ptr<DeviceProgram> make_program(const Phase& phase, Binding binding, const Numbered& numbered,
                                              const StreamTarget& target, DeviceWork& work);
  // Throws unless the group shares the memory of the device that the call is for.
  void check_device(const CollectiveSpec& spec, const StreamTarget& target) const;

  const Options options_;
  Transport& transport_;
  const int rank_, size_;
  const CollectiveTags tags_;
  // Null: the table alone chooses. Its executions hold the group.
  const std::unique_ptr<RivalChoices> rivals_;
  std::shared_ptr<const ipc::DeviceNode> device_node_;  // written before it is read, see share_devices()
  std::atomic<const ipc::DeviceNode*> captured_on_{nullptr};  // the same, kept for good with the graphs
};

}  // namespace mpi_gdr
