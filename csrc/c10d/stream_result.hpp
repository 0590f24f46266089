// Where on a device an operation's results are, for streams that use them. Any thread. Collectives have an
// event. A message arrives in host memory, and the first stream that needs it copies it. So no stream of ours
// blocks other work while it waits for a message, whatever the order of receives.
#pragma once

#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/device_streams.hpp"
#include "c10d/tensors.hpp"
#include "execution/device/gate.hpp"

namespace mpi_gdr::torch_binding {

class StreamResult {
 public:
  // On the issuing thread, with its stream current.
  explicit StreamResult(std::shared_ptr<DeviceStreams> streams)
      : streams_(std::move(streams)), call_stream_(streams_->current()) {}

  // --- during the issue ---
  // All work submitted to `stream` so far is part of the results.
  void computed(const c10::Stream& stream);
  // `gate` opens once the host has transferred the message; `arrivals` then copy it on the current stream.
  void arrives(std::shared_ptr<Gate> gate, std::vector<std::function<void()>> arrivals);
  void keep(FewTensors tensors);  // until wait() on the stream of the call, or release()

  // --- afterwards ---
  // Whether the results include a message, and so are complete only after the host's part.
  bool awaits_message();
  // The current stream waits. If it is the call's, releases kept memory: that stream orders the reuse.
  void wait();
  bool awaited();  // wait() was called
  // Returns a stream of ours, ordered behind the results, without blocking. Messages: after the host's part.
  c10::Stream order_results();
  void copy_message();  // after the host's part: copies the message if no stream has
  bool query();         // after the host's part: whether the device has the results
  void synchronize();
  void release();
  // Releases kept memory; not reused before `stream` has done its work.
  void release_to(const c10::Stream& stream);
  const DeviceStreams& streams() const { return *streams_; }

 private:
  // With mutex_. Orders `consumer` behind the results; does not block.
  void order(const c10::Stream& consumer);
  void copy_message_locked();

  const std::shared_ptr<DeviceStreams> streams_;
  const c10::Stream call_stream_;
  std::mutex mutex_;  // all below
  std::vector<std::shared_ptr<c10::Event>> computed_;
  std::shared_ptr<c10::Event> arrived_;  // null: not copied yet
  std::shared_ptr<Gate> gate_;           // null: events only
  std::vector<std::function<void()>> arrivals_;
  std::vector<at::Tensor> kept_;
  bool awaited_ = false;
};

}  // namespace mpi_gdr::torch_binding
