#include "c10d/stream_result.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/ipc/device_arena.hpp"

namespace mpi_gdr::torch_binding {
namespace {

void record_stream(const std::vector<at::Tensor>& tensors, const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl device(stream.device_type());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != stream.device()) continue;
    const c10::DataPtr& memory = tensor.storage().data_ptr();
    if (ipc::DeviceArena* const arena = ipc::DeviceArena::find(memory.get()))
      arena->share_with_streams(memory.get());
    else
      device.recordDataPtrOnStream(memory, stream);
  }
}

}  // namespace

void StreamResult::computed(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  computed_.push_back(std::make_shared<c10::Event>(stream.device_type()));
  computed_.back()->record(stream);
}

void StreamResult::arrives(std::shared_ptr<Gate> gate, std::vector<std::function<void()>> arrivals) {
  const std::lock_guard lock(mutex_);
  gate_ = std::move(gate);
  arrivals_ = std::move(arrivals);
}

void StreamResult::keep(FewTensors tensors) {
  const std::lock_guard lock(mutex_);
  std::move(tensors.begin(), tensors.end(), std::back_inserter(kept_));
}

bool StreamResult::awaits_message() {
  const std::lock_guard lock(mutex_);
  return gate_ != nullptr;
}

void StreamResult::order(const c10::Stream& consumer) {
  for (const auto& event : computed_) event->block(consumer);
  if (!gate_) return;
  if (arrived_) return arrived_->block(consumer);
  gate_->wait(*streams_->queue(consumer));
  // Else the allocator could reuse kept memory before the copies on another stream end.
  if (consumer != call_stream_) record_stream(kept_, consumer);
  {
    const c10::StreamGuard guard(consumer);
    for (auto& arrival : arrivals_) arrival();
  }
  arrivals_.clear();
  arrived_ = std::make_shared<c10::Event>(consumer.device_type());
  arrived_->record(consumer);
}

void StreamResult::wait() {
  std::vector<at::Tensor> done;  // dropped without the lock
  const std::lock_guard lock(mutex_);
  const c10::Stream consumer = streams_->current();
  order(consumer);
  awaited_ = true;
  // The stream of the call reuses freed memory, so that stream must have waited.
  if (consumer != call_stream_) return;
  // Keeps memory of the arena: other ranks use it until the operation completes, or longer if it fails.
  const auto theirs = std::partition(kept_.begin(), kept_.end(), [](const at::Tensor& tensor) {
    return ipc::DeviceArena::find(tensor.storage().data()) != nullptr;
  });
  std::move(theirs, kept_.end(), std::back_inserter(done));
  kept_.erase(theirs, kept_.end());
}

bool StreamResult::awaited() {
  const std::lock_guard lock(mutex_);
  return awaited_;
}

c10::Stream StreamResult::order_results() {
  const std::lock_guard lock(mutex_);
  order(streams_->futures());
  return streams_->futures();
}

void StreamResult::copy_message_locked() {
  if (gate_ && !arrived_) order(streams_->departures());
}

void StreamResult::copy_message() {
  const std::lock_guard lock(mutex_);
  copy_message_locked();
}

bool StreamResult::query() {
  const std::lock_guard lock(mutex_);
  for (const auto& event : computed_)
    if (!event->query()) return false;
  copy_message_locked();
  return !arrived_ || arrived_->query();
}

void StreamResult::synchronize() {
  std::vector<std::shared_ptr<c10::Event>> events;  // waited for without the lock
  {
    const std::lock_guard lock(mutex_);
    copy_message_locked();
    events = computed_;
    if (arrived_) events.push_back(arrived_);
  }
  for (const auto& event : events) event->synchronize();
}

void StreamResult::release() {
  std::vector<at::Tensor> done;
  const std::lock_guard lock(mutex_);
  done.swap(kept_);
}

void StreamResult::release_to(const c10::Stream& stream) {
  std::vector<at::Tensor> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(kept_);
  }
  record_stream(done, stream);
}

}  // namespace mpi_gdr::torch_binding
