// Runs a schedule on host memory: messages through the transport, copies and reductions on the polling
// thread. Lanes advance independently: one reduces while the messages of others travel.
#pragma once

#include <memory_resource>
#include <optional>
#include <vector>

#include "execution/execution.hpp"
#include "execution/host/shared_steps.hpp"
#include "execution/round_messages.hpp"
#include "execution/scratch_pool.hpp"

namespace mpi_gdr {

class HostExecution : public Execution {
 public:
  // `binding.scratch` is taken from `pool`. `transport` and `pool` must outlive the execution.
  HostExecution(SchedulePtr schedule, Binding&& binding, Transport& transport, ScratchPool& pool);

  bool advance() override;
  std::vector<int> pending_peers() const override;
  bool doorbell(Doorbell& bell) const override;
  bool awaits_turn() const override {
    return binding_.rivals.choices &&
           binding_.rivals.choices->waits(static_cast<int>(binding_.channel), binding_.rivals.number);
  }
  bool uses_only_memory() const override {
    return shared_ && !schedule_->messages && !(schedule_->staged && schedule_->staged->messages);
  }
  void abandon() noexcept override;

 private:
  struct LaneState {
    std::uint32_t round = 0;  // current
    bool posted = false;      // its messages are under way and its local steps done
    std::uint32_t waits = 0;  // number of leading steps of the round whose Waits are over
    RoundMessages messages;
  };
  bool advance_lane(int lane);
  void run_local_steps(const Round& round, int lane);
  bool run_waits(const Round& round, int lane);

  const SchedulePtr schedule_;
  const Schedule* plan_;  // the chosen one: schedule_ or its `staged`
  Binding binding_;
  Transport& transport_;
  ScratchPool::Block scratch_;
  std::byte buffer_[512];  // enough for short schedules
  std::pmr::monotonic_buffer_resource memory_{buffer_, sizeof buffer_};
  std::pmr::vector<LaneState> lanes_;
  std::vector<const void*> sources_;         // of the current step, kept to save the allocation
  std::optional<SharedSteps> shared_;        // if the schedule needs them
  std::unique_ptr<RoundObserver> observer_;  // null: none
  bool ended_ = false;
  std::size_t worked_ = 0;  // bytes of this call of advance()
};

}  // namespace mpi_gdr
