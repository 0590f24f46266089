#include "cudart/stream.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "cudart/capture.hpp"
#include "cudart/counters.hpp"
#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "gpu/fault.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {
namespace {

// Backoff between two checks.
class Patience {
 public:
  void wait() {
    if (++looks_ < 64)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(looks_ < 1000 ? 50 : 500));
  }
  void reset() { looks_ = 0; }

 private:
  int looks_ = 0;
};

// False: the process ends first.
bool run(const Step& step) {
  Patience patience;
  const std::chrono::milliseconds most(Settings::get().deadline_ms);
  auto since = std::chrono::steady_clock::now();
  while (!Machine::get().over) switch (step()) {
      case Progress::Ended:
        return true;
      case Progress::Waiting:
        patience.wait();
        if (most.count() != 0 && std::chrono::steady_clock::now() - since > most)
          fault("work of a stream that waited too long");
        break;
      case Progress::Running:
        patience.reset();
        since = std::chrono::steady_clock::now();
    }
  return false;
}

// Implicit dependencies of the legacy stream.
void add_implicit(const Stream& stream, std::vector<Mark>& after) {
  if (stream.kind == Stream::Kind::NonBlocking) return;
  const StreamPtr& legacy = stream.gpu.legacy;
  if (stream.kind == Stream::Kind::Blocking) {
    after.push_back({legacy, legacy->submitted});
    return;
  }
  for (const auto& other : stream.gpu.streams)
    if (const StreamPtr it = other.lock(); it && it->kind == Stream::Kind::Blocking)
      after.push_back({it, it->submitted});
}

// Waits while a queue is full, and blocks other calls meanwhile if the settings require it.
template <typename F>
void wait_for_room(Lock& lock, Gpu& gpu, F has_room) {
  if (has_room()) return;
  const bool shuts = Settings::get().waits && !gpu.shut;
  gpu.shut |= shuts;
  Machine::get().changed.wait(lock, has_room);
  if (!shuts) return;
  gpu.shut = false;
  Machine::get().changed.notify_all();
}

}  // namespace

Step once(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return Progress::Ended;
  };
}

void HardwareQueue::work() {
  executing_device() = device_;
  Machine& machine = Machine::get();
  Lock lock(machine.mutex);
  while (true) {
    filled_.wait(lock, [&] { return !items_.empty() || over_; });
    if (items_.empty()) return;
    Item& item = items_.front();
    for (const Mark& mark : item.after) wait(lock, mark);
    ++machine.executing;
    WeakMemory::executed() = item.submitted;
    lock.unlock();
    const bool ended = [&] {
      const auto engine = engine_ ? std::unique_lock(*engine_) : std::unique_lock<std::mutex>();
      if (most_delay_) std::this_thread::sleep_for(std::chrono::microseconds(random_() % (most_delay_ + 1)));
      return !item.step || run(item.step);
    }();
    settle_traffic();
    lock.lock();
    --machine.executing;
    if (!ended) {
      machine.changed.notify_all();
      machine.changed.wait(lock, [] { return false; });
    }
    --machine.pending;
    item.mark.stream->done = item.mark.number;
    Item done = std::move(item);
    items_.pop_front();
    machine.changed.notify_all();
    lock.unlock();  // destroys the work without the mutex
    done = {};
    lock.lock();
  }
}

void HardwareQueue::end(Lock&) {
  over_ = true;
  filled_.notify_one();
}

Mark enqueue(Lock& lock, const StreamPtr& stream, std::vector<Mark> after, Step step, Engine engine) {
  HardwareQueue& queue = stream->gpu.queue(engine, stream->number);
  wait_for_room(lock, stream->gpu, [&] { return queue.items_.size() < Settings::get().depth; });
  add_implicit(*stream, after);
  if (std::exchange(stream->last, engine) != engine) after.push_back({stream, stream->submitted});
  std::erase_if(after, [](const Mark& mark) { return mark.reached(); });
  const Mark mark{stream, ++stream->submitted};
  queue.items_.push_back(
      {mark, std::move(after), std::move(step), weak_memory() ? weak_memory()->submit() : 0});
  ++Machine::get().pending;
  if (!std::exchange(queue.started_, true)) std::thread([&queue] { queue.work(); }).detach();
  queue.filled_.notify_one();
  return mark;
}

void submit(Lock& lock, const StreamPtr& stream, Step step, Engine engine) {
  if (stream->capture)
    add_node(*stream, std::move(step), engine);
  else
    enqueue(lock, stream, {}, std::move(step), engine);
}

Mark mark_of(Lock& lock, const StreamPtr& stream) {
  if (stream->kind == Stream::Kind::Legacy) return enqueue(lock, stream, {}, nullptr);
  return {stream, stream->submitted};
}

void wait(Lock& lock, const Mark& mark) {
  Machine::get().changed.wait(lock, [&] { return mark.reached(); });
}

void wait_all(Lock& lock, Gpu& gpu) {
  std::vector<Mark> marks;
  std::erase_if(gpu.streams, [](const auto& stream) { return stream.expired(); });
  for (const auto& stream : gpu.streams)
    if (const StreamPtr it = stream.lock()) marks.push_back({it, it->submitted});
  for (const Mark& mark : marks) wait(lock, mark);
  show_host();
}

void show_host() {
  if (weak_memory()) weak_memory()->release();
}

void wait_shutting_out(Lock& lock, Gpu& gpu) {
  gpu.shut = true;
  wait_all(lock, gpu);
  gpu.shut = false;
  Machine::get().changed.notify_all();
}

}  // namespace fakecuda
