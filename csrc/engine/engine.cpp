#include "engine/engine.hpp"

#include <sched.h>

#include <algorithm>
#include <sstream>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/rank_list.hpp"

namespace mpigdr {
namespace {

// What a waiter does between two polls that moved nothing.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : oversubscribed_(oversubscribed) {}
  void moved() { idle_ = 0; }
  void idle() {
    ++idle_;
    if (!oversubscribed_ && idle_ < kSpins) return;
    if (idle_ < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kSpins = 4000;     // some 500 us of polling
  static constexpr int kYields = 200000;  // some 50 ms and more: by then a nap costs nothing that matters
  const bool oversubscribed_;
  int idle_ = 0;
};

// How long a failure waits for the flight log to be written: it is part of the deadline's 5 s of grace.
constexpr auto kFlightPatience = std::chrono::seconds(1);

std::int64_t ticks(Clock::time_point t) { return t.time_since_epoch().count(); }

// Says since when a thread is inside the transport, whatever way it leaves.
class InTransport {
 public:
  InTransport(std::atomic<std::int64_t>& began, Clock::time_point now) : began_(began) {
    began_.store(ticks(now), std::memory_order_release);
  }
  ~InTransport() { began_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::int64_t>& began_;
};

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Counted() { count_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  std::atomic<int>& count_;
};

std::exception_ptr make_error(ErrorCode code, const std::string& text) {
  return std::make_exception_ptr(Error(code, text));
}

enum class Waiting { ForPeers, ForItsTurn, ForTheRole };

std::string timeout_text(const Operation& operation, Waiting waiting, const std::vector<int>& peers) {
  std::ostringstream text;
  const OperationInfo& info = operation.info();
  using Seconds = std::chrono::duration<double>;
  text << "timed out after " << Seconds(Clock::now() - info.issued).count() << " s (its timeout is "
       << Seconds(info.deadline - info.issued).count() << " s): " << operation.describe();
  if (waiting == Waiting::ForTheRole) {
    text << "; another thread has been busy or stuck inside the MPI library for longer than that";
  } else if (waiting == Waiting::ForItsTurn) {
    text << "; it had not started: earlier operations of the group have not ended";
  } else if (peers.empty()) {
    text << "; the library's own collective did not finish, or it had not started";
  } else if (peers.size() == 1 && peers.front() == kAnySource) {
    text << "; nothing arrived from any rank";
  } else {
    text << "; still waiting for rank" << (peers.size() > 1 ? "s " : " ") << rank_list(peers);
  }
  return text.str();
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), progress_thread_(*this, options_.longest_nap), watch_(*this) {}

Engine::~Engine() { shutdown(); }

std::shared_ptr<Group> Engine::make_group(GroupOptions options, std::unique_ptr<Transport> transport,
                                          std::shared_ptr<Planner> planner) {
  return std::make_shared<Group>(*this, std::move(options), std::move(transport), std::move(planner));
}

void Engine::submit(const OperationPtr& operation) {
  {
    std::lock_guard lock(intake_mutex_);
    if (stopped_.load(std::memory_order_relaxed))
      fail(ErrorCode::Aborted, operation->info().name, ": the engine has been shut down");
    intake_.push_back(operation);
    if (operation->background()) unfinished_.emplace(operation.get(), operation);
    const std::int64_t deadline = ticks(operation->info().deadline);
    if (deadline < intake_deadline_.load(std::memory_order_relaxed))
      intake_deadline_.store(deadline, std::memory_order_relaxed);
    intake_filled_.store(true, std::memory_order_release);
  }
  if (!operation->background()) return;
  background_.fetch_add(1, std::memory_order_seq_cst);
  progress_thread_.wake();
}

bool Engine::try_pass() {
  std::unique_lock lock(role_, std::try_to_lock);
  return lock && pass();
}

bool Engine::take_intake() {
  if (!intake_filled_.load(std::memory_order_acquire)) return false;
  {
    std::lock_guard lock(intake_mutex_);
    arrived_.swap(intake_);
    intake_filled_.store(false, std::memory_order_relaxed);
    active_deadline_.store(std::min(active_deadline_.load(std::memory_order_relaxed),
                                    intake_deadline_.load(std::memory_order_relaxed)),
                           std::memory_order_relaxed);
    intake_deadline_.store(kNever, std::memory_order_relaxed);
  }
  for (OperationPtr& operation : arrived_) {
    operation->group().enqueue(operation);
  }
  for (OperationPtr& operation : arrived_) start(operation->group());
  for (OperationPtr& operation : arrived_)
    if (!operation->started)
      operation->queued = queued_.emplace(operation->info().deadline, operation).second;
  arrived_.clear();
  return true;
}

void Engine::start(Group& group) {
  const auto now = Clock::now();
  do {
    started_.clear();
    group.start_ready(started_);
    // In order: what a first advance() posts is posted in the order of issue.
    for (OperationPtr& operation : started_) {
      operation->note_start(now);
      const OperationInfo& info = operation->info();
      for (std::uint32_t i = 0; i < info.entries; ++i) flight()->log()->started(info.first_entry + i, now);
      operation->started = true;
      if (operation->queued) queued_.erase({operation->info().deadline, operation});
      if (!advance(operation, now)) active_.push_back(std::move(operation));
    }
  } while (!started_.empty());  // those that ended at once made room
}

bool Engine::pass() {
  if (stopped_.load(std::memory_order_acquire)) return false;  // MPI may be finalised already
  const auto now = Clock::now();
  const InTransport inside(pass_began_, now);
  const bool arrived = take_intake();
  end_overdue(now);
  return poll_active(now) || arrived;
}

void Engine::end_overdue(Clock::time_point now) {
  while (!queued_.empty() && queued_.begin()->first < now) {
    const OperationPtr operation = queued_.begin()->second;
    queued_.erase(queued_.begin());
    operation->queued = false;
    if (operation->finished()) continue;
    fail_operation(operation, fail_group(*operation, ErrorCode::Timeout,
                                         timeout_text(*operation, Waiting::ForItsTurn, {})));
  }
}

bool Engine::poll_active(Clock::time_point now) {
  bool moved = false;
  std::int64_t earliest = kNever;
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
  active_deadline_.store(earliest, std::memory_order_relaxed);
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
  set_current(operation);
  Group& group = operation->group();
  std::exception_ptr error;
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
    } else if (const std::string left = group.unreachable(*operation, now); !left.empty()) {
      fail(ErrorCode::Remote, operation->describe(), ": ", left);
    } else {
      return false;
    }
  } catch (const Error& e) {
    std::string text = e.what();
    if (e.code() == ErrorCode::System) {
      const std::string lost = options_.explain ? options_.explain(group) : "";
      text = operation->describe() + ": " + (lost.empty() ? text : lost + "; " + text);
    }
    error = fail_group(*operation, e.code(), text);
  } catch (const std::exception& e) {
    error = fail_group(*operation, ErrorCode::Internal, operation->describe() + ": " + e.what());
  }
  fail_operation(operation, error);
  set_current(nullptr);
  return true;
}

std::exception_ptr Engine::fail_group(Operation& operation, ErrorCode code, std::string text) {
  Group& group = operation.group();
  if (!group.failed()) {
    const std::vector<int> pending = operation.pending_peers();
    text = tell_failure(operation, std::move(text), &pending);
    group.fail_with("the group failed earlier: " + text, code);
  }
  return make_error(code, text);
}

std::string Engine::tell_failure(Operation& operation, std::string text, const std::vector<int>* pending) {
  if (!flight()) return text;
  const OperationInfo& info = operation.info();
  for (std::uint32_t i = 0; i < info.entries; ++i)
    flight()->log()->failed(info.first_entry + i, Clock::now(), text, pending);
  return text + write_flight_log(text);
}

std::string Engine::write_flight_log(const std::string& reason) {
  if (!flight() || flight()->path().empty()) return "";
  const FlightWriter::Result result = flight()->write(reason, kFlightPatience);
  return result.problem.empty() ? "; flight log: " + result.path
                                : "; the flight log could not be written: " + result.problem;
}

void Engine::fail_operation(const OperationPtr& operation, std::exception_ptr error) {
  operation->abandon();
  // Its buffers may still be written by a peer or by the library: they are never given back.
  new OperationPtr(operation);
  finish(*operation, std::move(error));
}

void Engine::note_end(Operation& operation, const std::exception_ptr& error) {
  const OperationInfo& info = operation.info();
  if (operation.finished()) return;
  std::string text;
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& e) {
    text = e.what();
  }
  const auto now = Clock::now();
  for (std::uint32_t i = 0; i < info.entries; ++i) {
    if (error)
      flight()->log()->failed(info.first_entry + i, now, text, nullptr);
    else
      flight()->log()->succeeded(info.first_entry + i, now);
  }
}

bool Engine::finish(Operation& operation, std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  const bool failed = error != nullptr;
  if (operation.info().entries) note_end(operation, error);
  if (!operation.try_finish(std::move(error), callbacks)) return false;
  operation.group().one_finished();
  if (operation.background()) {
    {
      std::lock_guard lock(intake_mutex_);
      unfinished_.erase(&operation);
    }
    background_.fetch_sub(1, std::memory_order_seq_cst);
  }
  for (auto& callback : callbacks) completer_.push(std::move(callback));
  if (!failed && operation.has_buffers() && operation.waiters.load(std::memory_order_acquire) == 0) {
    // Nobody waits: a completer thread lets go of the tensors, which may need the GIL.
    completer_.push([held = operation.shared_from_this()] { held->release_buffers(); });
  }
  return true;
}

void Engine::wait(Operation& operation, std::optional<std::chrono::nanoseconds> patience) {
  {
    const Counted waiter(operation.waiters), caller(callers_);
    auto deadline = operation.info().deadline;
    if (patience && *patience < deadline - Clock::now()) deadline = Clock::now() + *patience;
    Backoff backoff(options_.oversubscribed);
    for (unsigned polls = 0; !operation.finished(); ++polls) {
      try_pass() ? backoff.moved() : backoff.idle();
      if (polls % 64 != 63 || operation.finished()) continue;
      if (operation.group().failed() || stopped_.load(std::memory_order_acquire))
        give_up(operation, ErrorCode::Aborted);
      else if (Clock::now() > deadline)
        give_up(operation, ErrorCode::Timeout);
    }
  }
  if (operation.error()) std::rethrow_exception(operation.error());
  operation.release_buffers();
}

void Engine::give_up(Operation& operation, ErrorCode code) {
  const OperationPtr held = operation.shared_from_this();
  // A little patience, in case the role holder is about to end it properly.
  const bool role = take_role(std::chrono::milliseconds(200));
  if (!operation.finished()) {
    std::string text;
    if (code == ErrorCode::Timeout) {
      std::vector<int> peers;
      if (role) peers = operation.pending_peers();
      text = tell_failure(operation,
                          timeout_text(operation, role ? Waiting::ForPeers : Waiting::ForTheRole, peers),
                          role ? &peers : nullptr);
      operation.group().fail_with("the group failed earlier: " + text, ErrorCode::Timeout);
    } else {
      const std::string reason = operation.group().failure();
      text = operation.describe() + ": " + (reason.empty() ? "the engine was shut down" : reason);
    }
    // The next pass, if there ever is one, abandons the requests. Until then, and after: buffers are not
    // given back.
    if (finish(operation, make_error(code, text))) new OperationPtr(held);
  }
  if (role) role_.unlock();
  // Not by a pass: this waiter has its error, and must not get stuck in the transport.
  const std::string reason = operation.group().failure();
  end_background(&operation.group(), reason.empty() ? "the engine was shut down" : reason);
}

bool Engine::take_role(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (!role_.try_lock()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Engine::abort(Group& group, const std::string& reason) {
  if (!group.failed()) group.fail_with(reason + write_flight_log("group " + group.name() + ": " + reason));
  end_background(&group, group.failure());  // waiters see the failure by themselves
}

void Engine::lose(Group& group, const std::string& reason) {
  {
    std::lock_guard lock(current_mutex_);
    if (lost_.empty()) lost_ = reason;
  }
  if (!group.failed())
    group.fail_with(reason + write_flight_log("group " + group.name() + ": " + reason), ErrorCode::Remote);
  end_background(&group, group.failure());
}

void Engine::end_background(const Group* group, const std::string& reason) {
  std::vector<OperationPtr> ended;
  {
    std::lock_guard lock(intake_mutex_);
    for (const auto& [key, operation] : unfinished_)
      if (!group || &operation->group() == group) ended.push_back(operation);
  }
  for (const OperationPtr& operation : ended)
    // The next pass, if there ever is one, abandons the requests. The buffers are not given back.
    if (finish(*operation, make_error(ErrorCode::Aborted, operation->describe() + ": " + reason)))
      new OperationPtr(operation);
}

std::uint64_t Engine::first_unfinished(const Group& group, Channel channel) {
  std::uint64_t first = group.sequence(channel);
  std::lock_guard lock(intake_mutex_);
  for (const auto& [key, operation] : unfinished_)
    if (&operation->group() == &group && operation->info().channel == channel)
      first = std::min(first, operation->info().sequence);
  return first;
}

void Engine::drain(Group& group) {
  Backoff backoff(options_.oversubscribed);
  while (group.outstanding() > 0 && !stuck()) try_pass() ? backoff.moved() : backoff.idle();
}

void Engine::close(Group& group) {
  group.shut();
  drain(group);
  const bool role = take_role(std::chrono::seconds(1));
  if (!role || group.outstanding() > 0) {
    // A thread is, or was until just now, inside the transport for this group.
    group.fail_with("the group was destroyed while a thread was stuck in the MPI library");
  }
  if (!role) return;
  const InTransport inside(pass_began_, Clock::now());
  start(group);  // lets go of the finished ones in its window
  group.drop_transport();
  role_.unlock();
}

bool Engine::stuck() const {
  const std::int64_t began = pass_began_.load(std::memory_order_acquire);
  return began != 0 && Clock::now().time_since_epoch() - Clock::duration(began) > options_.stuck_grace;
}

bool Engine::shutdown() {
  {
    std::lock_guard lock(intake_mutex_);
    if (stopped_.load(std::memory_order_relaxed)) return ended_well_;
  }
  progress_thread_.stop(std::chrono::seconds(2));
  watch_.stop();
  const bool role = take_role(std::chrono::seconds(1));
  bool outstanding = background_outstanding() > 0;
  end_background(nullptr, "the engine was shut down");
  // Nothing that could get stuck inside the transport, when a process wants to end: the requests stay as they
  // are.
  if (role)
    for (const OperationPtr& operation : active_) {
      outstanding |= !operation->finished();
      finish(*operation,
             make_error(ErrorCode::Aborted, operation->describe() + ": the engine was shut down"));
      new OperationPtr(operation);
    }
  {
    // Later submissions are refused; what slipped in just now is ended by its waiter.
    std::lock_guard lock(intake_mutex_);
    stopped_.store(true, std::memory_order_release);
  }
  left_behind_ = !role;
  ended_well_ = role && !outstanding;
  if (role) role_.unlock();
  completer_.stop(std::chrono::seconds(2));
  return ended_well_;
}

}  // namespace mpigdr
