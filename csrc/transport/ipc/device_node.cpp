#include "transport/ipc/device_node.hpp"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "common/error.hpp"
#include "common/memory_file.hpp"

namespace mpi_gdr::ipc {
namespace {

constexpr int kAllSlots = ipc::kGraphSlot + 1;

// A slot has room for one such trial of each rank. Whole vectors of 16 bytes, as most elements are moved.
std::vector<std::uint64_t> trial_words(std::uint64_t seed, int size) {
  constexpr std::size_t kMost = std::size_t{256} << 10;
  std::vector<std::uint64_t> words(std::min(kMost, kStagingBytes / static_cast<std::size_t>(size)) / 16 * 2);
  std::generate(words.begin(), words.end(), std::mt19937_64(seed));
  return words;
}

}  // namespace

DeviceNode::DeviceNode(Device& device, int rank, Areas areas, std::vector<int> members)
    : NodeFlags(rank, std::move(areas), std::move(members)),
      device_(device),
      staging_(static_cast<std::size_t>(size())) {
  std::vector<DeviceSegments::Part*> parts;
  for (int r = 0; size() <= kMostResolved && r < size(); ++r)
    parts.push_back(reinterpret_cast<DeviceSegments::Part*>(area(r) + NodeFlags::bytes(size())));
  group_memory_ = std::make_unique<DeviceSegments>(device, *this, std::move(parts));
  // CUDA shares memory in units of this size: others would map the neighbours of a smaller allocation, too.
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
  const std::vector<std::uint64_t> words = trial_words(offer(rank).seed = draw_nonce(), size());
  queue->copy(staging.get(), words.data(), words.size() * sizeof words[0]);
  queue->synchronize();
  staging_[static_cast<std::size_t>(rank)] = staging.release();
}

void DeviceNode::publish() {
  group_memory_->publish();
  Offer& own = offer(rank());
  device_.identity().copy(own.identity.data(), own.identity.size());
  own.staging.set(device_.export_memory(staging_[static_cast<std::size_t>(rank())]));
  shared_ = true;
}

bool DeviceNode::attach(std::string& why) {
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    const Offer& theirs = offer(r);
    const auto refuse = [&](const std::string& text) {
      why = "rank " + std::to_string(member(r)) + text;
      return false;
    };
    const std::string handle = theirs.staging.get();
    if (handle.empty()) return refuse(" has no device memory to share");
    try {
      if (r != rank()) staging_[at] = static_cast<std::byte*>(device_.import_memory(handle));
      device_.register_host(area(r), bytes(size()));
      ++registered_;
      if (r != rank() && !arrives(r))
        return refuse(
            ": this device cannot write and read that rank's memory correctly; switch off the IOMMU or PCIe "
            "ACS");
    } catch (const std::exception& e) {
      return refuse(std::string(": ") + e.what() +
                    "; each rank must see all GPUs of its node, with peer access and without MIG (Slurm: "
                    "--gpus-per-node instead of --gpus-per-task)");
    }
    crowded_ |= r != rank() && theirs.identity == offer(rank()).identity;
  }
  attached_ = true;
  group_memory_->refresh(0);
  return true;
}

// Tests with kernels, as collectives use: copies may take another path. This device copies the owner's words
// inside the owner's memory, and the result to its own.
bool DeviceNode::arrives(int owner) const {
  const std::vector<std::uint64_t> sent = trial_words(offer(owner).seed, size());
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
      detached(r, rank()).store(1, std::memory_order_release);
    }
    return true;
  } catch (const std::exception&) {
    return false;  // the device has failed, or its runtime has ended
  }
}

template <typename F>
bool DeviceNode::all_reach(F flag, std::chrono::steady_clock::time_point deadline) const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
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
  // The others must have ended every use that this rank has begun, or all memory stays.
  for (int slot = 0; slot < kSlots && attached_; ++slot)
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
  // If this rank could not attach, the others may not have either, and never notify it.
  const bool alone =
      !shared_ ||
      (attached_ &&
       all_reach([&](int r) { return std::pair(&detached(rank(), r), std::uint64_t{1}); }, deadline));
  try {
    for (int r = 0; r < registered_; ++r) device_.unregister_host(area(r));
    if (alone && staging_[self]) device_.release(staging_[self]);
  } catch (const std::exception&) {
    // The device has failed, and its memory with it, or its runtime has ended.
    keep_mapped();
  }
}

}  // namespace mpi_gdr::ipc
