// Runs callbacks of finished operations (Futures, Python hooks), in no order. Thread-safe. They may take the
// GIL, block, or wait for another operation's Future (PowerSGD does): if no thread is free, one is started.
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

  // Lists move without allocating: without memory a Future would never complete.
  using Callbacks = std::list<std::function<void()>>;

  void push(Callbacks& callbacks) noexcept;  // empties the list; does not block; after stop() drops it

  // Runs queued callbacks and ends the threads; leaves them behind after `patience`. Idempotent.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Pool;  // threads may outlive the Completer
  const std::shared_ptr<Pool> pool_;
};

}  // namespace mpi_gdr
