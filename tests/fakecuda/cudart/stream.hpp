// Streams: ordered work, run by the threads of hardware queues, one for each engine, that several streams may
// share. A queue runs its items strictly in order: one that waits blocks those behind it, whatever their
// stream.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cudart/machine.hpp"
#include "gpu/kernel.hpp"

namespace fakecuda {

using Lock = std::unique_lock<std::mutex>;  // the machine's
using Progress = Launch::State;

// A piece of work, called until it returns Ended. A copy that was never called is the same work again.
using Step = std::function<Progress()>;
// Does `work` in one call.
Step once(std::function<void()> work);

struct Capture;

class Stream {
 public:
  // Legacy: waits for all Blocking streams of the device, and they wait for it.
  enum class Kind : std::uint8_t { Legacy, Blocking, NonBlocking };
  Stream(Gpu& gpu, Kind kind) : gpu(gpu), kind(kind), number(gpu.streams_made++) {}

  Gpu& gpu;
  const Kind kind;
  const std::size_t number;  // selects its hardware queues
  // Guarded by the machine's mutex:
  std::uint64_t submitted = 0, done = 0;  // items
  Engine last = Engine::Kernels;          // of the last item
  std::shared_ptr<Capture> capture;       // null: work runs
  std::vector<std::size_t> tip;           // of the capture: predecessors of the next node
};
using StreamPtr = std::shared_ptr<Stream>;

// A position in a stream, reached when `number` of its items are done.
struct Mark {
  StreamPtr stream;
  std::uint64_t number = 0;
  bool reached() const { return !stream || stream->done >= number; }  // with the mutex
};

class HardwareQueue {
 public:
  // `engine`: held while an item is executed; null: nothing is.
  HardwareQueue(int device, std::uint64_t most_delay, std::uint64_t seed, std::mutex* engine)
      : device_(device), most_delay_(most_delay), engine_(engine), random_(seed) {}
  HardwareQueue(const HardwareQueue&) = delete;
  // Ends the thread of a queue that is empty and gets no more work.
  void end(Lock& lock);

 private:
  friend Mark enqueue(Lock&, const StreamPtr&, std::vector<Mark>, Step, Engine);
  struct Item {
    Mark mark;
    std::vector<Mark> after;
    Step step;
    std::uint64_t submitted;  // WeakMemory::submit()
  };
  void work();  // the thread

  const int device_;
  const std::uint64_t most_delay_;  // us
  std::mutex* const engine_;
  std::mt19937_64 random_;
  // Guarded by the machine's mutex:
  std::deque<Item> items_;
  std::condition_variable filled_;
  bool started_ = false, over_ = false;
};

// Work that ends after `after` are reached and then `step`, if any, has ended. Waits while the queue is full.
Mark enqueue(Lock& lock, const StreamPtr& stream, std::vector<Mark> after, Step step,
             Engine engine = Engine::Kernels);
// The same, or a node if the stream is captured.
void submit(Lock& lock, const StreamPtr& stream, Step step, Engine engine = Engine::Kernels);
// After all that has been submitted, including other streams' work that the stream waits for.
Mark mark_of(Lock& lock, const StreamPtr& stream);
void wait(Lock& lock, const Mark& mark);
// Makes the writes of ended work visible to the host, which waited for it.
void show_host();
// For all streams of the device.
void wait_all(Lock& lock, Gpu& gpu);
// The same, and blocks all other calls for the device meanwhile, as a holder of the context's lock.
void wait_shutting_out(Lock& lock, Gpu& gpu);

}  // namespace fakecuda
