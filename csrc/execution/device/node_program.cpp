#include "execution/device/node_program.hpp"

#include <utility>

#include "common/error.hpp"
#include "common/fnv1a.hpp"

namespace mpi_gdr {

std::uint32_t call_digest(std::initializer_list<std::uint64_t> words) {
  Fnv1a hash;
  for (const std::uint64_t word : words) hash.add_word(word);
  return static_cast<std::uint32_t>(hash.value() ^ (hash.value() >> 32));
}

NodeProgram::NodeProgram(std::size_t rounds, const Binding& binding, const ipc::NodeFlags& node,
                         std::uint64_t use, std::uint32_t call, std::shared_ptr<StreamFlagPool> flags)
    : DeviceProgram(rounds, binding, std::move(flags)),
      node_(node),
      use_(use),
      slot_(static_cast<int>(use % ipc::kSlots)),
      generation_(use / ipc::kSlots + 1),
      call_(call),
      compared_(static_cast<std::size_t>(node.size())) {}

void NodeProgram::announce_call() const {
  for (int r = 0; r < node_.size(); ++r)
    node_.called(r, slot_, node_.rank())
        .store(called(r, binding_.send_counts, binding_.recv_counts), std::memory_order_release);
}

bool NodeProgram::carry() {
  compare_calls();
  const bool ended = flags_.ended();
  look_for_failures(ended);
  if (!ended) return false;
  node_.note_end(use_);
  ++rounds_done_;
  return true;
}

void NodeProgram::look_for_failures(bool ended) const {
  const int rank = node_.rank();
  node_.each_peer([&](int r) {
    // Its device will never raise the flags that this one waits for.
    if (node_.concerns(node_.refused(rank, r), use_))
      fail(ErrorCode::Remote, "rank ", node_.member(r),
           " could not launch its part of this operation, or of another one of the group, on its device");
    // A rank sets `failed` before it releases its device, whose data is then invalid. Not checked before this
    // device has ended: until then pending_peers() may name the rank that caused it.
    if (ended && node_.concerns(node_.failed(rank, r), use_))
      fail(ErrorCode::Remote, "rank ", node_.member(r),
           " has abandoned this operation or an earlier one of the group");
  });
}

std::uint64_t NodeProgram::called(int peer, const std::vector<std::uint64_t>& sent,
                                  const std::vector<std::uint64_t>& received) const {
  if (sent.empty()) return stamp(call_);
  const auto r = static_cast<std::size_t>(peer);
  return stamp(call_digest({call_, sent[r], received[r]}));
}

// Skips a host that is ahead: it has overwritten its word with the next call in this slot.
void NodeProgram::compare_calls() {
  for (int r = 0; r < node_.size(); ++r) {
    if (r == node_.rank() || compared_[static_cast<std::size_t>(r)]) continue;
    const std::uint64_t theirs = node_.called(node_.rank(), slot_, r).load(std::memory_order_acquire);
    if (theirs >> 32 < generation_) continue;
    if (theirs >> 32 == generation_ && theirs != called(r, binding_.recv_counts, binding_.send_counts))
      fail(ErrorCode::Mismatch, "rank ", node_.member(r), " called another collective than this rank",
           binding_.send_counts.empty() ? "" : ", or sends or expects another number of elements",
           ". Expected equal calls in the same order on all ranks of the group");
    compared_[static_cast<std::size_t>(r)] = true;
  }
}

std::vector<int> NodeProgram::pending_peers() const {
  std::vector<int> absent, busy;
  node_.each_peer([&](int r) {
    if (node_.called(node_.rank(), slot_, r).load(std::memory_order_acquire) < stamp(0))
      absent.push_back(node_.member(r));
    else if (node_.ended(node_.rank(), slot_, r).load(std::memory_order_acquire) < stamp(0))
      busy.push_back(node_.member(r));
  });
  return absent.empty() ? busy : absent;
}

}  // namespace mpi_gdr
