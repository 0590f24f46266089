#include "engine/engine.hpp"

namespace mpi_gdr {
namespace {

// An interrupt callback takes the GIL, which may be held for milliseconds.
constexpr std::chrono::milliseconds kAskEvery(200);
constexpr const char* kShutDown = "the engine was shut down";

class Counted {
 public:
  explicit Counted(std::atomic<int>& count, int by = 1) : count_(count), by_(by) { add(by_); }
  ~Counted() { add(-by_); }

 private:
  void add(int by) {
    if (by != 0) count_.fetch_add(by, std::memory_order_acq_rel);
  }
  std::atomic<int>& count_;
  const int by_;
};

}  // namespace

std::shared_ptr<Engine> Engine::create(EngineOptions options) {
  std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  engine->progress_thread_.begin(engine);
  // The last copy stops the threads; a thread that does not stop owns the engine.
  Engine* const address = engine.get();
  return {address, [engine = std::move(engine)](Engine*) mutable {
            engine->shutdown();
            engine.reset();
          }};
}

void Engine::carry(const OperationPtr& operation, bool begin_here) {
  if (!operation->background()) return;
  bool begun = false;
  if (begin_here) {
    // As a waiter, this thread releases the buffers: waking a completer takes longer than the operation.
    const Counted waiter(operation->waiters);
    std::vector<OperationPtr> ended;
    begun = progress_.try_begin(*operation, ended);
    release(ended, Releases::Here);
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

bool Engine::try_pass(Releases releases, const Operation* awaited, Doorbell* bell,
                      std::shared_ptr<const shm::NodeMemory>* memory) {
  std::vector<OperationPtr> ended;
  const bool moved = progress_.try_pass(ended, awaited, bell, memory);
  release(ended, releases);
  return moved;
}

void Engine::later(std::function<void()> callback) {
  Completer::Callbacks callbacks{std::move(callback)};
  completer_.push(callbacks);
}

void Engine::release(std::vector<OperationPtr>& ended, Releases releases) noexcept {
  if (ended.empty()) return;
  const Counted away(callers_, releases == Releases::ByCaller ? -1 : 0);  // it may wait long for the GIL
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

void Engine::wait(Operation& operation, std::optional<std::chrono::nanoseconds> patience,
                  Interrupt interrupt) {
  const std::shared_ptr<Engine> self = shared_from_this();
  std::exception_ptr interruption;
  {
    const Counted waiter(operation.waiters), caller(callers_);
    auto deadline = operation.info().deadline;
    if (patience && *patience < deadline - Clock::now()) deadline = Clock::now() + *patience;
    Backoff backoff(crowding_);
    Clock::time_point next_question{};  // the epoch: unset
    for (unsigned polls = 0; !operation.finished(); ++polls) {
      const bool looks = polls % 64 == 63;
      // Read before the pass, which completes what was complete when the group failed.
      const bool failed = looks && (operation.group().failed() || outstanding_.stopped());
      Doorbell bell;
      try_pass(Releases::ByCaller, &operation, &bell) ? backoff.moved() : backoff.idle(bell);
      if (!looks || operation.finished()) continue;
      const auto now = Clock::now();
      if (next_question == Clock::time_point{}) next_question = now + kAskEvery;
      if (failed) {
        fail_for_waiter(operation, ErrorCode::Aborted);
      } else if (now > deadline) {
        fail_for_waiter(operation, ErrorCode::Timeout);
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
    // Other operations have waiters, which observe their deadlines.
    const OperationPtr operation = outstanding_.next_of(&group);
    if (!operation) {
      try_pass(Releases::Here) ? backoff.moved() : backoff.idle({});
      continue;
    }
    try {
      wait(*operation);
    } catch (const Error&) {  // reported by its Work
    }
  }
}

void Engine::fail_for_waiter(Operation& operation, ErrorCode code) {
  const OperationPtr held = operation.shared_from_this();
  // The role holder may be about to end it.
  std::unique_lock role = progress_.take_role(std::chrono::seconds(1));
  if (!operation.finished()) try {
      std::string text;
      if (code == ErrorCode::Timeout) {
        std::vector<int> peers;
        if (role) peers = operation.pending_peers();
        text = endings_.timeout_text(operation,
                                     role ? Endings::Waiting::ForPeers : Endings::Waiting::ForTheRole, peers);
        text = endings_.report_failure(operation, std::move(text), role ? &peers : nullptr);
        operation.group().fail_with("the group failed earlier: " + text, ErrorCode::Timeout);
      } else {
        const std::string reason = operation.group().failure();
        text = operation.describe() + ": " + (reason.empty() ? kShutDown : reason);
      }
      // The next pass, if any, abandons the requests.
      if (endings_.finish(operation, make_error(code, text))) operation.leak();
    } catch (const std::bad_alloc&) {
      const std::exception_ptr error = endings_.memory_error(operation, kNoMemoryForRecords);
      operation.group().fail_with(kNoMemoryForRecords, ErrorCode::System);
      if (endings_.finish(operation, error)) operation.leak();
    }
  if (role) role.unlock();
  // Without a pass: this waiter must not get stuck in the transport.
  const std::string reason = operation.group().failure();
  endings_.end_background(&operation.group(), reason.empty() ? kShutDown : reason);
}

void Engine::abort(GroupState& group, const std::string& reason, ErrorCode code) {
  if (!group.failed())
    group.fail_with(reason + observers().group_failed("group " + group.name() + ": " + reason), code);
  endings_.end_background(&group, group.failure());  // waiters see the failure
}

void Engine::lose(const std::vector<GroupState*>& groups, const std::string& reason) {
  watch_.lose(reason);
  std::vector<GroupState*> well = groups;
  std::erase_if(well, [](const GroupState* g) { return g->failed(); });
  // Writes one log before any group fails: the text names it, and the first failure may end the process.
  if (!well.empty()) {
    std::string names = "group " + well.front()->name();
    if (well.size() > 1) names += " and " + std::to_string(well.size() - 1) + " more";
    const std::string text = reason + observers().group_failed(names + ": " + reason);
    for (GroupState* group : well) group->fail_with(text, ErrorCode::Remote, false, Others::Notified);
  }
  for (GroupState* group : groups) endings_.end_background(group, group->failure());
}

void Engine::close(GroupState& group) {
  const std::shared_ptr<Engine> self = shared_from_this();
  group.shut();
  Backoff backoff(crowding_);
  while (group.outstanding() > 0 && !stuck()) try_pass(Releases::Here) ? backoff.moved() : backoff.idle({});
  const std::unique_lock role = progress_.take_role(std::chrono::seconds(1));
  if (!role || group.outstanding() > 0) {
    // A thread is, or just was, in the transport for this group.
    group.fail_with("the group was destroyed while a thread was stuck in the MPI library");
  }
  if (role) progress_.close(group);
}

void Engine::settle(std::chrono::milliseconds patience) const {
  const auto until = Clock::now() + patience;
  while (outstanding_.background() > 0 && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool Engine::shutdown() {
  if (outstanding_.stopped()) return ended_well_;
  progress_thread_.stop(std::chrono::seconds(2));
  watch_.stop();
  std::unique_lock role = progress_.take_role(std::chrono::seconds(1));
  bool outstanding = outstanding_.background() > 0;
  endings_.end_background(nullptr, kShutDown);
  if (role) outstanding |= progress_.end_all(kShutDown);  // without the transport, which could block
  outstanding_.stop();                                    // waiters end what was submitted just now
  left_behind_ = !role;
  ended_well_ = role && !outstanding;
  if (role) role.unlock();
  completer_.stop(std::chrono::seconds(2));
  return ended_well_;
}

}  // namespace mpi_gdr
