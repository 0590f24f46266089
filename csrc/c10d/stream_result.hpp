// Where on a device the results of an operation are: what a stream has to wait for that shall use them. The
// CPU waits for nothing.
//
// A collective's results are behind an event. What a message brings is in host memory when the host's part is
// over, and copied from there by whichever stream asks first: so no queue of ours waits for a message while
// others stand behind it, in whatever order the program receives them.
//
// Threads: all members may be called from any thread.
#pragma once

#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/device_streams.hpp"
#include "execution/device/gate.hpp"

namespace mpi_gdr::torch_binding {

class StreamResult {
 public:
  // On the thread that issues the operation, with the stream current that it is issued on.
  explicit StreamResult(std::shared_ptr<DeviceStreams> streams)
      : streams_(std::move(streams)), home_(streams_->current()) {}

  // --- while the operation is issued ---
  // A part of the device's is what `stream` holds now.
  void computed(const c10::Stream& stream);
  // The host's part ends behind `gate`; then `arrivals` copy what it brought, on the current stream.
  void arrives(std::shared_ptr<Gate> gate, std::vector<std::function<void()>> arrivals);
  // Keeps these, too, until the stream of the call has been ordered behind the operation, or release().
  void keep(std::vector<at::Tensor> tensors);

  // --- afterwards ---
  // It holds what a message brings, so that only the end of the host's part says when it is there.
  bool awaits_message();
  // On the calling thread's current stream of the device. If the operation was issued on that stream, what
  // was kept goes: its memory is given out again in the order of that stream, behind the operation.
  void wait();
  // wait() has been called.
  bool awaited();
  // Later work of a stream of ours, which is returned, sees the results: for a Future. Never blocks. Of
  // messages only when the host's part is over.
  c10::Stream order_results();
  // The host's part is over: what it brought is copied to where it belongs without a request.
  void land();
  // True once the device has the results. The host's part is over.
  bool query();
  // Blocks until then.
  void synchronize();
  void release();
  // What is kept goes, and is not given out again before `stream`, which uses it, has come so far.
  void leave_to(const c10::Stream& stream);
  const DeviceStreams& streams() const { return *streams_; }

 private:
  // With mutex_: later work of `consumer` sees the results; never blocks.
  void order(const c10::Stream& consumer);
  void land_locked();

  const std::shared_ptr<DeviceStreams> streams_;
  const c10::Stream home_;
  std::mutex mutex_;  // all below
  std::vector<std::shared_ptr<c10::Event>> computed_;
  std::shared_ptr<c10::Event> arrived_;  // null: not ordered yet
  std::shared_ptr<Gate> gate_;           // null: the events are all
  std::vector<std::function<void()>> arrivals_;
  std::vector<at::Tensor> kept_;
  bool awaited_ = false;
};

}  // namespace mpi_gdr::torch_binding
