// Runs the callbacks of finished operations (Futures, Python hooks), which may take the GIL and may block.
//
// A callback may wait for the Future of another operation (PowerSGD does): whenever a callback is queued and
// no thread is free, one more is started. Callbacks have no order. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>

namespace mpi_gdr {

class Completer {
 public:
  Completer();  // starts the first thread
  ~Completer() { stop(std::chrono::seconds(2)); }

  // Lists are handed over without allocating: a Future that is not completed for want of memory is a hang.
  using Callbacks = std::list<std::function<void()>>;

  // Leaves `callbacks` empty. Never waits for a callback. After stop() they are dropped.
  void push(Callbacks& callbacks) noexcept;

  // Runs what is queued, then ends the threads, or leaves them behind after `patience`. Idempotent.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Pool;  // shared with the threads, which may outlive the Completer
  const std::shared_ptr<Pool> pool_;
};

}  // namespace mpi_gdr
