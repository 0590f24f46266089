// A device program among the ranks of a node, which compare their calls and learn of failures through flags.
// Threads: device_program.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "execution/device/device_program.hpp"
#include "transport/ipc/node_flags.hpp"

namespace mpi_gdr {

// A hash of words that are equal on all ranks.
std::uint32_t call_digest(std::initializer_list<std::uint64_t> words);

class NodeProgram : public DeviceProgram {
 public:
  // Ranks that have not issued the operation; if all have, those whose device has not ended it.
  std::vector<int> pending_peers() const override;
  void abandon() noexcept override { release_device(); }

 protected:
  // `node`: outlives it. `use`: earlier uses of its slots; `call`: identifies the call; both equal on all
  // ranks. The counts of an all_to_all, in `binding`, are compared in pairs. `rounds`: of the device program.
  NodeProgram(std::size_t rounds, const Binding& binding, const ipc::NodeFlags& node, std::uint64_t use,
              std::uint32_t call, std::shared_ptr<StreamFlagPool> flags);

  bool carry() override;
  void announce_call() const;  // issuing thread, before the device's work
  // `ended`: whether this device has ended.
  void look_for_failures(bool ended) const;
  std::uint64_t stamp(std::uint64_t number) const { return generation_ << 32 | number; }

  const ipc::NodeFlags& node_;
  const std::uint64_t use_;
  const int slot_;
  const std::uint64_t generation_;  // from 1
  const std::uint32_t call_;

 private:
  // The word that identifies this call, for the rank that receives sent[peer] and sends received[peer].
  std::uint64_t called(int peer, const std::vector<std::uint64_t>& sent,
                       const std::vector<std::uint64_t>& received) const;
  void compare_calls();

  std::vector<bool> compared_;  // progress role: ranks whose call is the same
};

}  // namespace mpi_gdr
