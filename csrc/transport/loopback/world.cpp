#include "transport/loopback/world.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "common/error.hpp"
#include "device/device.hpp"

namespace mpigdr::loopback {

World::World(int size, const LoopbackOptions& options)
    : size_(size),
      eager_bytes_(options.eager_bytes),
      max_late_tests_(options.max_late_tests),
      random_(options.seed),
      mailboxes_(static_cast<std::size_t>(size) * kChannelCount),
      native_sequence_(static_cast<std::size_t>(size) * kChannelCount, 0) {}

World::Mailbox& World::mailbox(int rank, Channel channel) {
  return mailboxes_[static_cast<std::size_t>(rank) * kChannelCount + static_cast<std::size_t>(channel)];
}

std::uint64_t World::new_slot() {
  std::uint64_t handle = slots_.size();
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    handle = free_slots_.back();
    free_slots_.pop_back();
    slots_[handle] = Slot{};
  }
  slots_[handle].late_tests = max_late_tests_ ? static_cast<unsigned>(random_() % (max_late_tests_ + 1)) : 0;
  return handle;
}

void World::deliver(const Message& message, const Receive& receive) {
  Slot& slot = slots_[receive.receiver];
  slot.done = true;
  slot.status = {message.source, message.tag, message.bytes};
  if (message.bytes > receive.bytes) {
    std::ostringstream text;
    text << "message truncated: " << message.bytes << " bytes from rank " << message.source << " with tag "
         << message.tag << " do not fit a receive of " << receive.bytes << " bytes";
    slot.error = text.str();
  }
  const std::size_t bytes = std::min(message.bytes, receive.bytes);
  if (bytes) std::memcpy(receive.data, message.bytes_at(), bytes);
  if (message.sender != kNobody) slots_[message.sender].done = true;
}

std::uint64_t World::send(Channel channel, const void* data, std::size_t bytes, int from, int to, int tag,
                          bool lost) {
  std::lock_guard lock(mutex_);
  const std::uint64_t handle = new_slot();
  const bool eager = bytes <= eager_bytes_;
  slots_[handle].done = eager;
  if (lost) return handle;
  Message message{from, tag, bytes, {}, data, eager ? kNobody : handle};
  Mailbox& box = mailbox(to, channel);
  const auto match = std::find_if(box.posted.begin(), box.posted.end(),
                                  [&](const Receive& r) { return r.accepts(message); });
  if (match != box.posted.end()) {
    deliver(message, *match);
    box.posted.erase(match);
    return handle;
  }
  if (eager) {
    const auto* first = static_cast<const std::byte*>(data);
    if (bytes) message.buffered.assign(first, first + bytes);
    message.data = nullptr;
  }
  box.unexpected.push_back(std::move(message));
  return handle;
}

std::uint64_t World::receive(Channel channel, void* data, std::size_t bytes, int from, int to, int tag) {
  std::lock_guard lock(mutex_);
  const std::uint64_t handle = new_slot();
  const Receive receive{from, tag, bytes, data, handle};
  Mailbox& box = mailbox(to, channel);
  const auto match = std::find_if(box.unexpected.begin(), box.unexpected.end(),
                                  [&](const Message& m) { return receive.accepts(m); });
  if (match == box.unexpected.end()) {
    box.posted.push_back(receive);
    return handle;
  }
  deliver(*match, receive);
  box.unexpected.erase(match);
  return handle;
}

bool World::test(std::uint64_t handle, RecvStatus* status) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[handle];
  if (!slot.done) return false;
  if (slot.late_tests > 0) {
    --slot.late_tests;
    return false;
  }
  const std::string error = std::move(slot.error);
  if (status && slot.status.source >= 0) *status = slot.status;
  free_slots_.push_back(handle);
  if (!error.empty()) throw Error(ErrorCode::System, error);
  return true;
}

void World::abandon(std::uint64_t handle) {
  std::lock_guard lock(mutex_);
  for (Mailbox& box : mailboxes_) {
    box.posted.remove_if([&](const Receive& r) { return r.receiver == handle; });
    box.unexpected.remove_if([&](const Message& m) { return m.sender == handle; });
  }
  for (auto& [key, operation] : natives_)
    if (std::find(operation.requests.begin(), operation.requests.end(), handle) != operation.requests.end())
      operation.given_up = true;
  free_slots_.push_back(handle);
}

std::uint64_t World::native(Channel channel, int rank, const NativeCollective& collective, bool lost) {
  std::lock_guard lock(mutex_);
  const std::uint64_t handle = new_slot();
  if (lost) return handle;
  const int c = static_cast<int>(channel);
  const std::uint64_t sequence = native_sequence_[static_cast<std::size_t>(rank) * kChannelCount + c]++;
  const auto [entry, first] = natives_.try_emplace({c, sequence});
  NativeOperation& operation = entry->second;
  if (first) {
    operation.parts.resize(size_);
    operation.requests.assign(size_, kNobody);
  }
  operation.parts[rank] = collective;
  operation.requests[rank] = handle;
  if (++operation.arrived < size_) return handle;
  // A rank that gave up has left the collective for good, so the others can never finish it.
  if (!operation.given_up) run_native(operation);
  natives_.erase(entry);
  return handle;
}

void World::run_native(NativeOperation& operation) {
  const NativeCollective& lead = operation.parts[0];
  const std::size_t bytes = lead.count * item_size(lead.dtype);
  for (const NativeCollective& part : operation.parts) {
    if (part.collective == lead.collective && part.count == lead.count && part.dtype == lead.dtype &&
        part.op == lead.op && part.root == lead.root)
      continue;
    for (const std::uint64_t request : operation.requests) {
      slots_[request].done = true;
      slots_[request].error = "ranks called different native collectives";
    }
    return;
  }
  // The result is complete before any output is written: outputs may be inputs.
  std::vector<std::byte> result;
  const auto append = [&](const void* data) {
    const auto* first = static_cast<const std::byte*>(data);
    if (bytes) result.insert(result.end(), first, first + bytes);
  };
  switch (lead.collective) {
    case Collective::AllReduce:
      append(lead.input);
      for (int r = 1; r < size_; ++r) {
        const void* const sources[] = {result.data(), operation.parts[r].input};
        host::reduce({lead.dtype, lead.op, result.data(), sources, 2, lead.count});
      }
      break;
    case Collective::Broadcast:
      append(operation.parts[lead.root].output);
      break;
    case Collective::AllGather:
      for (const NativeCollective& part : operation.parts) append(part.input);
      break;
    default:
      break;  // Barrier moves nothing; others are refused by native_supported()
  }
  for (int r = 0; r < size_; ++r) {
    if (!result.empty()) std::memcpy(operation.parts[r].output, result.data(), result.size());
    slots_[operation.requests[r]].done = true;
  }
}

bool native_supported(Collective collective, DataType dtype, ReduceOp op) {
  switch (collective) {
    case Collective::Broadcast:
    case Collective::AllGather:
    case Collective::Barrier:
      return true;
    case Collective::AllReduce:
      return (op == ReduceOp::Sum || op == ReduceOp::Min || op == ReduceOp::Max) &&
             (dtype == DataType::Float64 || dtype == DataType::Float32 || dtype == DataType::Int64);
    default:
      return false;
  }
}

}  // namespace mpigdr::loopback
