#include "engine/engine.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "common/memory_reserve.hpp"

namespace mpigdr {
namespace {

std::int64_t ticks(Clock::time_point t) { return t.time_since_epoch().count(); }

// The question takes the GIL, which another thread may hold for some milliseconds.
constexpr std::chrono::milliseconds kAskEvery(200);

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

class Counted {
 public:
  explicit Counted(std::atomic<int>& count, int by = 1) : count_(count), by_(by) {
    count_.fetch_add(by_, std::memory_order_acq_rel);
  }
  ~Counted() { count_.fetch_sub(by_, std::memory_order_acq_rel); }

 private:
  std::atomic<int>& count_;
  const int by_;
};

}  // namespace

std::shared_ptr<Engine> Engine::create(EngineOptions options) {
  std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  engine->progress_thread_.begin(engine);
  // What the caller gets stops the threads when it goes. Threads that do not stop keep the engine itself.
  Engine* const address = engine.get();
  return {address, [engine = std::move(engine)](Engine*) mutable {
            engine->shutdown();
            engine.reset();
          }};
}

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), progress_thread_(*this, options_.longest_nap), watch_(*this) {}

void Engine::carry(const OperationPtr& operation, bool begin_here) {
  if (!operation->background()) return;
  bool begun = false;
  if (begin_here) {
    // As a waiter: an operation that ends here has its buffers let go of by this thread, because to wake a
    // completer thread for it takes longer than the operation.
    const Counted waiter(operation->waiters);
    begun = begin(operation);
  }
  if (!operation->finished()) {
    using When = ProgressThread::When;
    const bool message = operation->info().channel == Channel::PointToPoint;
    if (message && begun) return progress_thread_.wake(When::Later);
    outstanding_.hurry(*operation);
    return progress_thread_.wake(begin_here && !message ? When::Soon : When::Now);
  }
  if (begin_here && !operation->error()) operation->release_buffers();
}

void Engine::expect(Operation& operation) {
  if (operation.finished()) return;
  outstanding_.hurry(operation);
  progress_thread_.wake(ProgressThread::When::Now);
}

bool Engine::begin(const OperationPtr& operation) {
  std::vector<OperationPtr> ended;
  bool begun = false;
  {
    const std::unique_lock role(role_, std::try_to_lock);
    if (!role || operation->group().windows().any_waits()) return false;
    begun = pass(operation.get());
    ended.swap(unreleased_);
  }
  if (!ended.empty()) release(ended, Releases::Here);
  return begun;
}

bool Engine::try_pass(Releases releases, const Operation* awaited, Doorbell* bell,
                      std::shared_ptr<const shm::NodeMemory>* memory) {
  std::vector<OperationPtr> ended;
  bool moved = false;
  {
    const std::unique_lock lock(role_, std::try_to_lock);
    if (!lock) return false;
    moved = pass();
    ended.swap(unreleased_);
    if (bell && !moved && active_.size() == 1 && (!awaited || active_.front().get() == awaited) &&
        active_.front()->doorbell(*bell) && memory)
      *memory = active_.front()->group().node();
  }
  if (!ended.empty()) release(ended, releases);
  return moved;
}

void Engine::release(std::vector<OperationPtr>& ended, Releases releases) noexcept {
  // That may take the GIL, which another thread may hold for long.
  const Counted away(callers_, releases == Releases::ByCaller ? -1 : 0);
  Completer::Callbacks callbacks;
  for (OperationPtr& operation : ended) {
    if (releases != Releases::Completer) {
      operation->release_buffers();
      continue;
    }
    try {
      callbacks.emplace_back([held = operation] { held->release_buffers(); });
    } catch (const std::bad_alloc&) {
      operation->leak();
    }
  }
  completer_.push(callbacks);
}

bool Engine::take_in(const Operation* only) {
  if (!outstanding_.take(arrived_, only)) return false;
  for (OperationPtr& operation : arrived_) operation->group().windows().enqueue(operation);
  for (OperationPtr& operation : arrived_) start(operation->group());
  for (OperationPtr& operation : arrived_)
    if (!operation->started)
      operation->queued = queued_.emplace(operation->info().deadline, operation).second;
  arrived_.clear();
  return true;
}

void Engine::start(GroupState& group) {
  const auto now = Clock::now();
  do {
    started_.clear();
    group.windows().start_ready(started_);
    // In order: what a first advance() posts is posted in the order of issue.
    for (OperationPtr& operation : started_) {
      operation->note_start(now);
      if (!operation->finished())  // in the queue, by an abort
        observers_.each(operation->numbers,
                        [&](Observer& o, auto& number) { number = o.started(*operation, number, now); });
      operation->started = true;
      if (operation->queued) queued_.erase({operation->info().deadline, operation});
      if (!advance(operation, now)) active_.push_back(std::move(operation));
    }
  } while (!started_.empty());  // those that ended at once made room
}

bool Engine::pass(const Operation* only) {
  if (outstanding_.stopped()) return false;  // MPI may be finalised already
  const auto now = Clock::now();
  const InTransport inside(pass_began_, now);
  try {
    const bool arrived = take_in(only);
    if (only) {
      if (active_.empty()) outstanding_.set_taken_deadline(Outstanding::kNever);
      return arrived;
    }
    end_overdue(now);
    return poll_active(now) || arrived;
  } catch (const std::bad_alloc&) {
    fail_for_want_of_memory();
  } catch (const NoMemory&) {
    fail_for_want_of_memory();
  }
  return true;
}

bool Engine::poll_active(Clock::time_point now) {
  bool moved = false;
  std::int64_t earliest = Outstanding::kNever;
  for (std::size_t i = 0; i < active_.size();) {
    const std::uint64_t before = active_[i]->rounds_done();
    if (advance(active_[i], now)) {
      const OperationPtr ended = std::move(active_[i]);
      active_[i] = std::move(active_.back());
      active_.pop_back();
      moved = true;
      start(ended->group());  // its place in the window is free
    } else {
      moved |= active_[i]->rounds_done() != before;
      earliest = std::min(earliest, ticks(active_[i]->info().deadline));
      ++i;
    }
  }
  outstanding_.set_taken_deadline(earliest);
  return moved;
}

void Engine::set_current(const OperationPtr& operation) {
  if (current_ == operation) return;  // only the role holder writes: it may read without the mutex
  OperationPtr before = operation;
  std::lock_guard lock(current_mutex_);
  current_.swap(before);
}

// True if the operation is over, well or not.
bool Engine::advance(const OperationPtr& operation, Clock::time_point now) {
  // A thread that comes back from the transport after shutdown() gave it up must not call it again.
  if (outstanding_.stopped()) return false;
  set_current(operation);
  observers_.each(operation->numbers, [](Observer& o, const auto& number) { o.entered(number); });
  GroupState& group = operation->group();
  std::exception_ptr error;
  Others others = Others::Unaware;
  try {
    if (operation->finished()) {
      error = operation->error();  // a waiter gave up while the role was elsewhere
    } else if (group.failed()) {
      fail(ErrorCode::Aborted, operation->describe(), ": ", group.failure());
    } else if (operation->advance()) {
      operation->retire();
      set_current(nullptr);
      finish(*operation, nullptr);
      return true;
    } else if (now > operation->info().deadline) {
      const std::vector<int> peers = operation->pending_peers();
      fail(ErrorCode::Timeout, timeout_text(*operation, Waiting::ForPeers, peers));
    } else if (const auto left = group.unreachable(*operation, now)) {
      others = left->failed ? Others::Know : Others::Unaware;
      fail(ErrorCode::Remote, operation->describe(), ": ", left->text);
    } else {
      return false;
    }
  } catch (const Error& e) {
    std::string text = e.what();
    if (dynamic_cast<const NoMemory*>(&e)) {
      text = operation->describe() + ": " + text;
    } else if (e.code() == ErrorCode::System) {
      const std::string lost = options_.explain ? options_.explain(group) : "";
      text = operation->describe() + ": " + (lost.empty() ? text : lost + "; " + text);
    }
    error = fail_group(*operation, e.code(), text, others);
  } catch (const std::bad_alloc&) {
    release_memory_reserve();
    error = fail_group(*operation, ErrorCode::System, operation->describe() + ": " + kNoMemoryForRecords);
  } catch (const std::exception& e) {
    error = fail_group(*operation, ErrorCode::Internal, operation->describe() + ": " + e.what());
  }
  fail_operation(operation, error);
  set_current(nullptr);
  return true;
}

bool Engine::finish(Operation& operation, std::exception_ptr error) noexcept {
  if (operation.finished()) return false;
  Completer::Callbacks callbacks;
  const bool failed = error != nullptr;
  const auto now = Clock::now();
  try {
    const std::string text = failed ? text_of(error) : "";
    observers_.each(operation.numbers, [&](Observer& o, const auto& number) {
      o.ended(operation, number, now, failed ? &text : nullptr);
    });
  } catch (const std::bad_alloc&) {
    // The observers lack its end.
  }
  if (!operation.try_finish(std::move(error), now, callbacks)) return false;
  observers_.each(operation.numbers,
                  [&](Observer& o, const auto& number) { o.settled(operation, number, now, failed); });
  if (failed) operation.release_device();  // also where no pass will ever abandon it
  operation.group().one_finished();
  outstanding_.remove(operation);
  // A thread that stops waiting (carry()) looks whether the operation is finished after it has left
  // `waiters`; this writes there, so that one of the two sees the other.
  if (!failed && operation.has_buffers() && operation.waiters.fetch_add(0, std::memory_order_acq_rel) == 0) {
    // Nobody waits: the tensors are let go of behind the pass, since that may need the GIL.
    try {
      unreleased_.push_back(operation.shared_from_this());
    } catch (const std::bad_alloc&) {
      operation.leak();
    }
  }
  completer_.push(callbacks);
  return true;
}

void Engine::wait(Operation& operation, std::optional<std::chrono::nanoseconds> patience,
                  Interrupt interrupt) {
  const std::shared_ptr<Engine> self = shared_from_this();
  std::exception_ptr interruption;
  {
    const Counted waiter(operation.waiters), caller(callers_);
    auto deadline = operation.info().deadline;
    if (patience && *patience < deadline - Clock::now()) deadline = Clock::now() + *patience;
    Backoff backoff(crowding_);
    auto next_question = Clock::now() + kAskEvery;
    for (unsigned polls = 0; !operation.finished(); ++polls) {
      Doorbell bell;
      try_pass(Releases::ByCaller, &operation, &bell) ? backoff.moved() : backoff.idle(bell);
      if (polls % 64 != 63 || operation.finished()) continue;
      const auto now = Clock::now();
      if (operation.group().failed() || outstanding_.stopped()) {
        give_up(operation, ErrorCode::Aborted);
      } else if (now > deadline) {
        give_up(operation, ErrorCode::Timeout);
      } else if (interrupt && now > next_question) {
        next_question = now + kAskEvery;
        if ((interruption = interrupt()))
          abort(operation.group(), "the program was interrupted while it waited for " + operation.describe());
      }
    }
  }
  if (interruption) std::rethrow_exception(interruption);
  if (operation.error()) std::rethrow_exception(operation.error());
  operation.release_buffers();
}

void Engine::wait_all(GroupState& group) {
  const std::shared_ptr<Engine> self = shared_from_this();
  Backoff backoff(crowding_);
  while (group.outstanding() > 0 && !outstanding_.stopped()) {
    const std::vector<OperationPtr> pending = outstanding_.all_of(&group);
    for (const OperationPtr& operation : pending) {
      try {
        wait(*operation);
      } catch (const Error&) {
        // Told to whoever holds the operation.
      }
    }
    // What is left belongs to callers that wait for it themselves, and see to its deadline.
    if (pending.empty()) try_pass(Releases::Here) ? backoff.moved() : backoff.idle({});
  }
}

}  // namespace mpigdr
