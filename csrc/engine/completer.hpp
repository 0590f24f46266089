// Runs the callbacks of finished operations (c10d Futures, Python hooks), away from the progress thread: they
// may take the GIL and may block.
//
// A callback may itself wait for the Future of another operation (PowerSGD does), whose callback must then
// not queue behind it: whenever a callback is queued and no thread is free to take it, one more is started.
// Nobody is promised an order between callbacks. Thread-safe.
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

  // Lists, so that whoever has made the callbacks can hand them over without allocating: a Future that is
  // never completed for want of memory would be a hang.
  using Callbacks = std::list<std::function<void()>>;

  // Leaves `callbacks` empty. Never waits for a callback. After stop() they are dropped: nobody is left to
  // hear of them.
  void push(Callbacks& callbacks) noexcept;

  // Runs what is queued, then ends the threads. Those that are stuck in a callback at the end of `patience`
  // are left behind. Idempotent.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Pool;  // shared with the threads, which may outlive the Completer
  const std::shared_ptr<Pool> pool_;
};

}  // namespace mpi_gdr
