// How operations and groups end that do not end well: deadlines, abort, lost peers. The first failure of a
// group writes the flight log, and its text says where.
#include <algorithm>
#include <iterator>
#include <sstream>

#include "common/error.hpp"
#include "common/memory_reserve.hpp"
#include "common/rank_list.hpp"
#include "engine/engine.hpp"

namespace mpigdr {
namespace {

std::exception_ptr make_error(ErrorCode code, const std::string& text) {
  return std::make_exception_ptr(Error(code, text));
}

}  // namespace

std::string Engine::timeout_text(const Operation& operation, Waiting waiting,
                                 const std::vector<int>& peers) const {
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
  const std::string quiet = options_.quiet ? options_.quiet(operation.group()) : "";
  if (!quiet.empty()) text << "; " << quiet;
  return text.str();
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

std::exception_ptr Engine::fail_group(Operation& operation, ErrorCode code, std::string text, Others others) {
  GroupState& group = operation.group();
  if (!group.failed()) {
    const std::vector<int> pending = operation.pending_peers();
    text = tell_failure(operation, std::move(text), &pending);
    group.fail_with("the group failed earlier: " + text, code, false, others);
  }
  return make_error(code, text);
}

std::string Engine::tell_failure(Operation& operation, std::string text, const std::vector<int>* pending) {
  observers_.each(operation.numbers, [&](Observer& o, const auto& number) {
    o.failed(operation, number, Clock::now(), text, pending);
  });
  return text + observers_.group_failed(text);
}

void Engine::fail_operation(const OperationPtr& operation, std::exception_ptr error) {
  operation->abandon();
  // Its buffers may still be written by a peer or by the library: they are never given back.
  operation->leak();
  finish(*operation, std::move(error));
}

void Engine::give_up(Operation& operation, ErrorCode code) {
  const OperationPtr held = operation.shared_from_this();
  // A little patience, in case the role holder is about to end it properly.
  const bool role = take_role(std::chrono::milliseconds(1000));
  std::unique_lock lock(role_, std::defer_lock);
  if (role) lock = std::unique_lock(role_, std::adopt_lock);
  if (!operation.finished()) try {
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
      if (finish(operation, make_error(code, text))) operation.leak();
    } catch (const std::bad_alloc&) {
      const std::exception_ptr error = memory_error(operation, kNoMemoryForRecords);
      operation.group().fail_with(kNoMemoryForRecords, ErrorCode::System);
      if (finish(operation, error)) operation.leak();
    }
  if (role) lock.unlock();
  // Not by a pass: this waiter has its error, and must not get stuck in the transport.
  const std::string reason = operation.group().failure();
  end_background(&operation.group(), reason.empty() ? "the engine was shut down" : reason);
}

void Engine::abort(GroupState& group, const std::string& reason) {
  if (!group.failed())
    group.fail_with(reason + observers_.group_failed("group " + group.name() + ": " + reason));
  end_background(&group, group.failure());  // waiters see the failure by themselves
}

void Engine::lose(const std::vector<GroupState*>& groups, const std::string& reason) {
  {
    std::lock_guard lock(current_mutex_);
    if (lost_.empty()) lost_ = reason;
  }
  std::vector<GroupState*> well;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(well),
               [](GroupState* g) { return !g->failed(); });
  // Once for all, and before any of them fails: its text says where the log is, and a process may end as soon
  // as it hears.
  if (!well.empty()) {
    std::string names = "group " + well.front()->name();
    if (well.size() > 1) names += " and " + std::to_string(well.size() - 1) + " more";
    const std::string text = reason + observers_.group_failed(names + ": " + reason);
    for (GroupState* group : well) group->fail_with(text, ErrorCode::Remote, false, Others::Know);
  }
  for (GroupState* group : groups) end_background(group, group->failure());
}

void Engine::end_background(const GroupState* group, const std::string& reason) {
  // One by one, without a list of them: this also runs when there is no memory.
  while (const OperationPtr operation = outstanding_.next_of(group)) {
    std::exception_ptr error;
    try {
      error = make_error(ErrorCode::Aborted, operation->describe() + ": " + reason);
    } catch (const std::bad_alloc&) {
      error = memory_error(*operation, reason);
    }
    // The next pass, if there ever is one, abandons the requests. The buffers are not given back.
    if (finish(*operation, error)) operation->leak();
  }
}

std::exception_ptr Engine::memory_error(const Operation& operation, std::string_view text) const noexcept {
  release_memory_reserve();
  try {
    return std::make_exception_ptr(NoMemory(operation.describe() + ": " + std::string(text)));
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

void Engine::fail_for_want_of_memory() noexcept {
  release_memory_reserve();
  const auto fail_one = [&](const OperationPtr& operation) {
    const std::exception_ptr error = memory_error(*operation, kNoMemoryForRecords);
    operation->group().fail_with(kNoMemoryForRecords, ErrorCode::System);
    fail_operation(operation, error);
  };
  // What has not got here yet, was just being started, or runs. Those of a window end as their group has
  // failed.
  for (std::vector<OperationPtr>* const list : {&arrived_, &started_, &active_}) {
    for (const OperationPtr& operation : *list)
      if (operation) fail_one(operation);
    list->clear();
  }
  set_current(nullptr);
  while (const OperationPtr operation = outstanding_.next_of(nullptr)) fail_one(operation);
}

}  // namespace mpigdr
