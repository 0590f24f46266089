// Runs the steps of a schedule on other ranks' memory: Signal, Wait, and Copy and Reduce with others' slices.
// One for each execution, with a slot of the NodeMemory. Used by the holder of the progress role only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "device/device.hpp"
#include "execution/execution.hpp"
#include "execution/scratch_pool.hpp"
#include "transport/doorbell.hpp"

namespace mpi_gdr {

class SharedSteps {
 public:
  // All arguments must outlive this object.
  SharedSteps(const Schedule& schedule, const Binding& binding, ScratchPool& pool,
              std::pmr::memory_resource& memory);

  // True once all ranks have ended the slot's earlier use and schedule() is chosen. Exposes our buffers.
  bool begin();
  // The constructor's schedule or its Schedule::staged, whichever was chosen. Valid after begin().
  const Schedule& schedule() const { return *schedule_; }
  void signal(int lane);
  // `step`: the lane's next Wait for its peer. True if the peer has executed the Signal that ends this Wait.
  // Throws Mismatch, naming both calls, if the peer is in another call.
  bool awaited(int lane, const Step& step);
  void run(const Step& step);  // Copy or Reduce
  void end();

  // Ranks that the last begin() or awaited() found missing; never this rank itself.
  void pending_peers(std::vector<int>& peers) const;
  // The flag that the last begin() or awaited() waits for; false: none.
  bool doorbell(Doorbell& bell) const;
  void leak() noexcept { bounce_.leak(); }

 private:
  struct Address {
    std::byte* here = nullptr;  // null: not mapped
    std::uint64_t there = 0;    // address in the owner's process
    int owner = -1;
  };
  Address resolve(const Slice& slice) const;
  bool slot_is_free();
  bool is_open() const;
  bool chooses_by_reach() const;
  // Returns this rank's bits for the others' choice. Chooses `staged` at once where that is certain.
  std::uint64_t choose_or_offer();
  bool agree();
  // Throw Mismatch, naming both calls.
  void compare_calls(int peer);
  void compare_ended(int peer, std::uint64_t ended) const;
  void compare_use(int peer, std::uint64_t use) const;
  // For all_to_all.
  void publish_counts();
  void compare_counts(int peer);
  // Number i of a rank's counts: its send_counts, then its recv_counts.
  std::uint64_t published(int rank, std::size_t i) const;
  // Where in a rank's Input its block for this rank begins, or in its Output the block from this rank.
  std::uint64_t block_start(int rank, Buffer buffer) const;
  // Records that a rank's flag does not have the awaited value; returns false.
  bool missing(int rank, const std::atomic<std::uint64_t>& flag, std::uint64_t seen,
               std::atomic<std::uint32_t>& sleepers);
  void raise(std::atomic<std::uint64_t>& flag, std::uint64_t value);
  shm::Slot& slot(int rank) const;
  const shm::Slot& use_slot(int rank, std::uint64_t use) const;
  static std::uint64_t generation_of(std::uint64_t use) { return use / shm::kSlots + 1; }
  void copy(const Address& to, const Address& from, std::size_t bytes) const;
  void reduce(const Step& step, ReduceArgs args);

  const Schedule* schedule_;
  const Binding& binding_;
  const shm::NodeMemory& node_;
  const int channel_;
  const std::uint64_t use_;         // of the channel's slots, counted from 0
  const int number_;                // of the slot
  const std::uint64_t generation_;  // of its uses, counted from 1
  ScratchPool& pool_;
  ScratchPool::Block bounce_;  // pieces of others' memory that is not mapped
  // One allocation: our Signals by lane; consumed Signals by lane and place; by place, whether calls agree.
  const std::size_t lanes_, ranks_;
  std::pmr::vector<std::uint64_t> counts_;
  std::pmr::vector<Address> addresses_;  // with sources_: of the current Reduce, kept to save the allocation
  std::pmr::vector<const void*> sources_;
  std::uint64_t& notices(int lane) { return counts_[static_cast<std::size_t>(lane)]; }
  std::uint64_t& consumed(int lane, int peer) {
    return counts_[lanes_ + static_cast<std::size_t>(lane) * ranks_ + node_.place(peer)];
  }
  bool agrees(int rank) const { return counts_[counts_.size() - ranks_ + node_.place(rank)]; }
  void set_agrees(int rank) { counts_[counts_.size() - ranks_ + node_.place(rank)] = 1; }
  RivalChoices::Choice choice_;
  int missing_ = -1;
  Doorbell bell_;  // if a rank is missing
  bool notified_ = false, begun_ = false;
};

}  // namespace mpi_gdr
