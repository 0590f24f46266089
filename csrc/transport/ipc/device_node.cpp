#include "transport/ipc/device_node.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "common/error.hpp"

namespace mpi_gdr::ipc {
namespace {

constexpr int kAllSlots = ipc::kGraphSlot + 1;

// A slot has room for one such trial of each rank. Whole vectors of 16 bytes, as most elements are moved.
std::vector<std::uint64_t> trial_words(std::uint64_t nonce, int size) {
  constexpr std::size_t kMost = std::size_t{256} << 10;
  std::vector<std::uint64_t> words(std::min(kMost, kStagingBytes / static_cast<std::size_t>(size)) / 16 * 2);
  std::generate(words.begin(), words.end(), std::mt19937_64(nonce));
  return words;
}

}  // namespace

DeviceNode::DeviceNode(Device& device, int rank, int size, std::vector<int> members)
    : NodeFlags(rank, size, members, DeviceSegments::bytes(size, kSlots)),
      device_(device),
      registered_(static_cast<std::size_t>(size)),
      attached_(static_cast<std::size_t>(size)),
      staging_(static_cast<std::size_t>(size)),
      group_memory_(std::make_unique<DeviceSegments>(device, rank, size, kSlots, std::move(members))) {
  // In units of CUDA's sharing: with a smaller allocation others would map its neighbours, too.
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  static_assert(kStagingBytes % kPiece == 0 && 2 * sizeof(Line) + kSlots * kTableWords * 8 <= kPiece);
  const auto give_back = [&device](std::byte* memory) {
    try {
      device.release(memory);
    } catch (const std::exception&) {
      // The device has failed, and its memory with it.
    }
  };
  std::unique_ptr<std::byte, decltype(give_back)> staging(
      static_cast<std::byte*>(device_.allocate(kAllSlots * kStagingBytes + kPiece)), give_back);
  counts_ = reinterpret_cast<Line*>(staging.get() + kAllSlots * kStagingBytes);
  const Line zeros[2] = {};
  const auto queue = device_.make_queue();
  queue->copy(counts_, zeros, sizeof zeros);
  const std::vector<std::uint64_t> words = trial_words(nonce(), size);
  queue->copy(staging.get(), words.data(), words.size() * sizeof words[0]);
  queue->synchronize();
  staging_[static_cast<std::size_t>(rank)] = staging.release();  // nothing below throws
  group_memory_->attach(rank, behind_flags(rank));
}

Ticket DeviceNode::ticket() {
  group_memory_->publish();
  Ticket ticket = NodeFlags::ticket();
  const std::string handle = device_.export_memory(staging_[static_cast<std::size_t>(rank())]);
  if (handle.size() > ticket.handle.size())
    fail(ErrorCode::System, "a device's handle of ", handle.size(), " bytes, expected at most ",
         ticket.handle.size());
  ticket.handle_bytes = static_cast<std::uint32_t>(handle.size());
  std::memcpy(ticket.handle.data(), handle.data(), handle.size());
  device_.identity().copy(ticket.identity.data(), ticket.identity.size());
  shared_ = true;
  return ticket;
}

bool DeviceNode::attach(const std::vector<Ticket>& tickets, std::string& why) {
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const Ticket& theirs = tickets[at];
    const std::string who = "rank " + std::to_string(member(r));
    const auto refuse = [&](const std::string& text) {
      why = who + text;
      return false;
    };
    if (theirs.file < 0) return refuse(" has no device memory to share");
    if (theirs.handle_bytes > theirs.handle.size())
      return refuse("'s handle has " + std::to_string(theirs.handle_bytes) + " bytes, expected at most " +
                    std::to_string(theirs.handle.size()));
    try {
      if (!NodeFlags::attach(r, theirs))
        return refuse("'s flags cannot be mapped: the ranks of a node need one PID namespace");
      if (r != rank())
        staging_[at] =
            static_cast<std::byte*>(device_.import_memory({theirs.handle.data(), theirs.handle_bytes}));
      device_.register_host(segment(r), segment_bytes());
      registered_[at] = true;
      if (r != rank() && !arrives(r, theirs.nonce))
        return refuse(
            ": this device cannot write and read that rank's memory correctly; switch off the IOMMU or PCIe "
            "ACS");
    } catch (const std::exception& e) {
      return refuse(std::string(": ") + e.what() +
                    "; each rank must see all GPUs of its node, with peer access and without MIG (Slurm: "
                    "--gpus-per-node instead of --gpus-per-task)");
    }
    crowded_ |= r != rank() && theirs.identity == tickets[static_cast<std::size_t>(rank())].identity;
    attached_[at] = true;
    group_memory_->attach(r, behind_flags(r));
  }
  group_memory_->refresh(0);
  return true;
}

// By kernels, as collectives do: copies may use another path. This device copies the words of the owner
// inside the owner's memory, and the result to its own.
bool DeviceNode::arrives(int owner, std::uint64_t nonce) const {
  const std::vector<std::uint64_t> sent = trial_words(nonce, size());
  std::vector<std::uint64_t> back(sent.size());
  const std::size_t bytes = sent.size() * sizeof sent[0], part = static_cast<std::size_t>(rank()) * bytes;
  const auto queue = device_.make_queue();
  const auto move = [&](std::byte* to, const void* from) {
    queue->reduce(ReduceArgs{DataType::Int64, ReduceOp::Sum, to, &from, 1, sent.size()});
  };
  move(staging(owner, 1) + part, staging(owner, 0));
  move(staging(rank(), 1) + part, staging(owner, 1) + part);
  queue->copy(back.data(), staging(rank(), 1) + part, bytes);
  queue->synchronize();
  return back == sent;
}

bool DeviceNode::detach() noexcept {
  try {
    for (int r = 0; r < size(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r == rank() || !staging_[at]) continue;
      group_memory_->release(r);
      device_.release_imported(staging_[at]);
      staging_[at] = nullptr;
      if (attached_[at]) detached(r, rank()).store(1, std::memory_order_release);
    }
    return true;
  } catch (const std::exception&) {
    return false;  // the device has failed, or its runtime has ended
  }
}

template <typename F>
bool DeviceNode::all_reach(F flag, std::chrono::steady_clock::time_point deadline) const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || !attached_[static_cast<std::size_t>(r)]) continue;
    const auto [word, least] = flag(r);
    while (word->load(std::memory_order_acquire) < least) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return true;
}

DeviceNode::~DeviceNode() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const auto self = static_cast<std::size_t>(rank());
  const bool attached = std::ranges::count(attached_, false) == 0;
  // The others must have ended every use that this rank has begun, or all memory stays.
  for (int slot = 0; slot < kSlots && attached; ++slot)
    if (!all_reach(
            [&](int r) {
              const std::uint64_t called_here = called(r, slot, rank()).load(std::memory_order_acquire);
              return std::pair(&ended(rank(), slot, r), called_here >> 32 << 32);
            },
            deadline)) {
      keep_mapped();
      return;
    }
  // CUDA requires that importers unmap memory before its owner frees it.
  detach();
  // A rank that is not attached to all is not notified by all.
  const bool alone =
      !shared_ ||
      (attached &&
       all_reach([&](int r) { return std::pair(&detached(rank(), r), std::uint64_t{1}); }, deadline));
  try {
    for (int r = 0; r < size(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (registered_[at]) device_.unregister_host(segment(r));
    }
    if (alone && staging_[self]) device_.release(staging_[self]);
  } catch (const std::exception&) {
    // The device has failed, and its memory with it, or its runtime has ended.
    keep_mapped();
  }
}

}  // namespace mpi_gdr::ipc
