// Streams: work in the order of submission, executed by the thread of a hardware queue that several streams
// may share. A queue runs its items strictly one after the other: one that waits holds up those behind it, of
// whatever stream.
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

using Lock = std::unique_lock<std::mutex>;  // of the machine
using Progress = Launch::State;

// A piece of work: called until it has Ended. A copy of one that was never called is the same work once more.
using Step = std::function<Progress()>;
// The same, of what is done at once.
Step once(std::function<void()> work);

struct Capture;

class Stream {
 public:
  // Legacy: waits for all Blocking streams of the device, and they for it.
  enum class Kind : std::uint8_t { Legacy, Blocking, NonBlocking };
  Stream(Gpu& gpu, Kind kind) : gpu(gpu), kind(kind), queue(gpu.next_queue()) {}

  Gpu& gpu;
  const Kind kind;
  HardwareQueue& queue;
  // All below: under the machine's mutex.
  std::uint64_t submitted = 0, done = 0;  // items
  std::shared_ptr<Capture> capture;       // null: work is run
  std::vector<std::size_t> tip;           // of the capture: the nodes that the next one comes behind
};
using StreamPtr = std::shared_ptr<Stream>;

// A place in a stream: reached when so many of its items are done.
struct Mark {
  StreamPtr stream;
  std::uint64_t number = 0;
  bool reached() const { return !stream || stream->done >= number; }  // under the mutex
};

class HardwareQueue {
 public:
  HardwareQueue(int device, std::uint64_t most_delay, std::uint64_t seed)
      : device_(device), most_delay_(most_delay), random_(seed) {}
  HardwareQueue(const HardwareQueue&) = delete;
  // Of a queue without work, which gets none any more: the thread ends.
  void end(Lock& lock);

 private:
  friend Mark enqueue(Lock&, const StreamPtr&, std::vector<Mark>, Step);
  struct Item {
    Mark mark;
    std::vector<Mark> after;
    Step step;
    std::uint64_t submitted;  // WeakMemory::submit()
  };
  void work();  // the thread

  const int device_;
  const std::uint64_t most_delay_;  // us
  std::mt19937_64 random_;
  // All below: under the machine's mutex.
  std::deque<Item> items_;
  std::condition_variable filled_;
  bool started_ = false, over_ = false;
};

// Work that is done when the marks are reached, too, and then `step`, if any. Waits while the queue is full.
Mark enqueue(Lock& lock, const StreamPtr& stream, std::vector<Mark> after, Step step);
// The same, or a node where the stream is captured.
void submit(Lock& lock, const StreamPtr& stream, Step step);
// Of what has been submitted so far, of other streams' that the stream waits for as well.
Mark mark_of(Lock& lock, const StreamPtr& stream);
void wait(Lock& lock, const Mark& mark);
// Once the host knows that work has ended, it sees what that has written.
void show_host();
// For all streams of a device.
void wait_all(Lock& lock, Gpu& gpu);
// The same, while every other call for this device waits: as one that holds the context's lock.
void wait_shutting_out(Lock& lock, Gpu& gpu);

}  // namespace fakecuda
