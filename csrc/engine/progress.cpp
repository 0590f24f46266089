#include "engine/progress.hpp"

#include <algorithm>
#include <thread>

#include "common/memory_reserve.hpp"

namespace mpi_gdr {
namespace {

// If a caller waits for one message after another, one pass in this many polls the other operations.
constexpr int kPollAllEvery = 8;

}  // namespace

bool Progress::try_pass(std::vector<OperationPtr>& ended, const Operation* awaited, Doorbell* bell,
                        std::shared_ptr<const shm::NodeMemory>* memory) {
  const std::unique_lock role(role_, std::try_to_lock);
  if (!role) return false;
  const bool moved = pass(nullptr, awaited);
  endings_.take_unreleased(ended);
  if (bell && !moved && active_.size() == 1 && (!awaited || active_.front().get() == awaited) &&
      active_.front()->doorbell(*bell) && memory)
    *memory = active_.front()->group().node();
  return moved;
}

bool Progress::try_begin(const Operation& operation, std::vector<OperationPtr>& ended) {
  const std::unique_lock role(role_, std::try_to_lock);
  if (!role || operation.group().windows().any_waits()) return false;
  const bool begun = pass(&operation);
  endings_.take_unreleased(ended);
  return begun;
}

std::unique_lock<std::mutex> Progress::take_role(std::chrono::milliseconds patience) {
  std::unique_lock role(role_, std::defer_lock);
  const auto until = Clock::now() + patience;
  while (!role.try_lock() && Clock::now() <= until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return role;
}

bool Progress::stuck() const {
  const std::int64_t began = pass_began_.load(std::memory_order_acquire);
  return began != 0 && Clock::now().time_since_epoch() - Clock::duration(began) > options_.stuck_grace;
}

OperationPtr Progress::current() const {
  const std::lock_guard lock(current_mutex_);
  return current_;
}

void Progress::set_current(const OperationPtr& operation) {
  if (current_ == operation) return;  // only the role holder writes
  OperationPtr before = operation;
  const std::lock_guard lock(current_mutex_);
  current_.swap(before);
}

bool Progress::pass(const Operation* only, const Operation* awaited) {
  if (outstanding_.stopped()) return false;  // MPI may be finalised
  const auto now = Clock::now();
  const InTransport inside(pass_began_, now);
  try {
    const bool arrived = take_in(now, only);
    if (only) {
      if (active_.empty()) outstanding_.set_taken_deadline(Outstanding::kNever);
      return arrived;
    }
    end_overdue(now);
    return poll_active(now, awaited) || arrived;
  } catch (const std::bad_alloc&) {
    fail_out_of_memory();
  } catch (const NoMemory&) {
    fail_out_of_memory();
  }
  return true;
}

bool Progress::take_in(Clock::time_point now, const Operation* only) {
  if (!outstanding_.take(arrived_, only)) return false;
  for (OperationPtr& operation : arrived_) operation->group().windows().enqueue(operation);
  for (OperationPtr& operation : arrived_)  // an earlier start may take long
    start(operation->group(), operation->info().channel,
          &operation == &arrived_.front() ? now : Clock::now());
  for (OperationPtr& operation : arrived_)
    if (!operation->started)
      operation->queued = queued_.emplace(operation->info().deadline, operation).second;
  arrived_.clear();
  return true;
}

void Progress::start(GroupState& group, Channel channel, Clock::time_point now) {
  do {
    started_.clear();
    group.windows().start_ready(channel, started_);
    for (OperationPtr& operation : started_) {  // first advances post in the order of issue
      const auto start = std::max(now, operation->info().issued);  // it may be issued after `now`
      operation->note_start(start);
      if (!operation->finished())  // while queued, by an abort
        endings_.observers().each(operation->numbers, [&](Observer& o, auto& number) {
          number = o.started(*operation, number, start);
        });
      ++traffic_.started;
      if (operation->queued) queued_.erase({operation->info().deadline, operation});
      const bool ended = advance(operation, now);
      operation->started = true;
      if (ended)
        ++traffic_.ended;
      else
        active_.push_back(std::move(operation));
    }
  } while (!started_.empty());  // ended ones made room
}

bool Progress::poll_active(Clock::time_point now, const Operation* awaited) {
  const auto first =
      std::find_if(active_.begin(), active_.end(), [&](const OperationPtr& o) { return o.get() == awaited; });
  if (first != active_.end()) first->swap(active_.front());
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    const std::uint64_t before = active_[i]->rounds_done();
    if (advance(active_[i], now)) {
      const OperationPtr ended = std::move(active_[i]);
      active_[i] = std::move(active_.back());
      active_.pop_back();
      ++traffic_.ended;
      moved = true;
      start(ended->group(), ended->info().channel, ended->finished_at());  // freed its place in the window
      if (ended.get() == awaited && ++partial_passes_ < kPollAllEvery) break;
    } else {
      moved |= active_[i]->rounds_done() != before;
      if (++i == active_.size()) partial_passes_ = 0;
    }
  }
  note_earliest_deadline();
  return moved;
}

void Progress::note_earliest_deadline() {
  std::int64_t earliest = Outstanding::kNever;
  for (const OperationPtr& operation : active_)
    earliest = std::min<std::int64_t>(earliest, operation->info().deadline.time_since_epoch().count());
  outstanding_.set_taken_deadline(earliest);
}

bool Progress::advance_parts(Operation& operation) {
  const std::string_view before = operation.algorithm();
  const bool done = operation.advance();
  if (operation.algorithm().data() != before.data())
    endings_.observers().each(operation.numbers,
                              [&](Observer& o, const auto& number) { o.chosen(operation, number); });
  return done;
}

// Whether all ranks had done their part before another rank failed the group. Only for collectives in the
// node's memory: advancing must not post messages.
bool Progress::was_complete(Operation& operation) {
  if (!operation.started || operation.on_device() || !operation.uses_only_memory() ||
      operation.info().channel == Channel::PointToPoint ||
      operation.group().failure_code() != ErrorCode::Remote)
    return false;
  try {
    return advance_parts(operation);
  } catch (const std::exception&) {
    return false;  // the group's failure says more
  }
}

// True if the operation has ended.
bool Progress::advance(const OperationPtr& operation, Clock::time_point now) {
  if (outstanding_.stopped()) return false;  // after shutdown() the transport must not be called
  if (!operation->uses_only_memory()) set_current(operation);
  endings_.observers().each(operation->numbers, [](Observer& o, const auto& number) { o.entered(number); });
  GroupState& group = operation->group();
  std::exception_ptr error;
  Others others = Others::Unaware;
  try {
    if (operation->finished()) {
      error = operation->error();  // a waiter gave up
    } else if (const bool failed = group.failed();
               failed ? was_complete(*operation) : advance_parts(*operation)) {
      operation->retire();
      set_current(nullptr);
      endings_.finish(*operation, nullptr);
      return true;
    } else if (failed) {
      fail(ErrorCode::Aborted, operation->describe(), ": ", group.failure());
    } else if (now > operation->info().deadline) {
      const std::vector<int> peers = operation->pending_peers();
      fail(ErrorCode::Timeout, endings_.timeout_text(*operation, Endings::Waiting::ForPeers, peers));
    } else if (const auto left = group.unreachable(*operation, now)) {
      others = left->failed ? Others::Notified : Others::Unaware;
      fail(ErrorCode::Remote, operation->describe(), ": ", left->text);
    } else {
      if (options_.on_slow && !operation->slow && group.is_slow(operation->info(), now)) {
        operation->slow = true;
        options_.on_slow(*operation);
      }
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
    error = endings_.fail_group(*operation, e.code(), text, others);
  } catch (const std::bad_alloc&) {
    release_memory_reserve();
    error = endings_.fail_group(*operation, ErrorCode::System,
                                operation->describe() + ": " + kNoMemoryForRecords);
  } catch (const std::exception& e) {
    error = endings_.fail_group(*operation, ErrorCode::Internal, operation->describe() + ": " + e.what());
  }
  endings_.fail_operation(*operation, error);
  set_current(nullptr);
  return true;
}

void Progress::end_overdue(Clock::time_point now) {
  while (!queued_.empty() && queued_.begin()->first < now) {
    const OperationPtr operation = queued_.begin()->second;
    queued_.erase(queued_.begin());
    operation->queued = false;
    if (operation->finished()) continue;
    const std::string text = endings_.timeout_text(*operation, Endings::Waiting::ForItsTurn, {});
    endings_.fail_operation(*operation, endings_.fail_group(*operation, ErrorCode::Timeout, text));
  }
}

void Progress::fail_out_of_memory() noexcept {
  release_memory_reserve();
  const auto fail_one = [&](const OperationPtr& operation) {
    const std::exception_ptr error = endings_.memory_error(*operation, kNoMemoryForRecords);
    operation->group().fail_with(kNoMemoryForRecords, ErrorCode::System);
    endings_.fail_operation(*operation, error);
  };
  // Operations in windows fail with their groups.
  for (std::vector<OperationPtr>* const list : {&arrived_, &started_, &active_}) {
    for (const OperationPtr& operation : *list)
      if (operation) fail_one(operation);
    list->clear();
  }
  traffic_.ended = traffic_.started;
  set_current(nullptr);
  while (const OperationPtr operation = outstanding_.next_of(nullptr)) fail_one(operation);
}

void Progress::close(GroupState& group) {
  const auto now = Clock::now();
  const InTransport inside(pass_began_, now);
  try {
    for (int c = 0; c < kChannelCount; ++c)  // drops finished operations from its windows
      start(group, static_cast<Channel>(c), now);
  } catch (const std::bad_alloc&) {
    fail_out_of_memory();
  }
  // The caller may now reuse buffers: abandon what uses them, but not in a library, where that may block.
  traffic_.ended += std::erase_if(active_, [&](const OperationPtr& operation) {
    if (&operation->group() != &group || !operation->finished() || !operation->uses_only_memory())
      return false;
    operation->abandon();
    return true;
  });
  group.drop_transport();
}

bool Progress::end_all(const std::string& reason) {
  bool any = false;
  for (const OperationPtr& operation : active_) {
    any |= !operation->finished();
    endings_.finish(*operation, make_error(ErrorCode::Aborted, operation->describe() + ": " + reason));
    operation->leak();
  }
  return any;
}

}  // namespace mpi_gdr
