#include "engine/endings.hpp"

#include <sstream>

#include "common/memory_reserve.hpp"
#include "common/rank_list.hpp"

namespace mpi_gdr {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::exception_ptr make_error(ErrorCode code, const std::string& text) {
  return std::make_exception_ptr(Error(code, text));
}

bool Endings::finish(Operation& operation, std::exception_ptr error) noexcept {
  if (operation.finished()) return false;
  Completer::Callbacks callbacks;
  const bool failed = error != nullptr;
  const auto now = Clock::now();
  try {
    const std::string text = failed ? text_of(error) : "";
    observers_.each(operation.numbers, [&](Observer& o, const auto& number) {
      o.ended(operation, number, now, failed ? &text : nullptr);
    });
  } catch (const std::bad_alloc&) {  // observers miss the operation's end
  }
  if (!operation.try_finish(std::move(error), now, callbacks)) return false;
  observers_.each(operation.numbers,
                  [&](Observer& o, const auto& number) { o.settled(operation, number, now, failed); });
  if (operation.on_ended) operation.on_ended(operation);
  if (failed) operation.release_device();  // there may be no later pass to abandon it
  operation.group().one_finished();
  outstanding_.remove(operation);
  // Engine::carry() decrements `waiters`, then reads finished(), which is already set here: if this does not
  // read 0, carry() sees the end and releases the buffers.
  if (!failed && operation.has_buffers() && operation.waiters.fetch_add(0, std::memory_order_acq_rel) == 0) {
    // After the pass: releasing buffers may need the GIL.
    try {
      unreleased_.push_back(operation.shared_from_this());
    } catch (const std::bad_alloc&) {
      operation.leak();
    }
  }
  completer_.push(callbacks);
  return true;
}

void Endings::fail_operation(Operation& operation, std::exception_ptr error) noexcept {
  operation.abandon();
  operation.leak();  // a peer or the library may still write there
  finish(operation, std::move(error));
}

void Endings::end_background(const GroupState* group, const std::string& reason) {
  // Takes one at a time: there may be no memory for a list.
  while (const OperationPtr operation = outstanding_.next_of(group)) {
    std::exception_ptr error;
    try {
      error = make_error(ErrorCode::Aborted, operation->describe() + ": " + reason);
    } catch (const std::bad_alloc&) {
      error = memory_error(*operation, reason);
    }
    if (finish(*operation, error)) operation->leak();  // the next pass, if any, abandons the requests
  }
}

std::exception_ptr Endings::fail_group(Operation& operation, ErrorCode code, std::string text,
                                       Others others) {
  GroupState& group = operation.group();
  if (!group.failed()) {
    const std::vector<int> pending = operation.pending_peers();
    text = report_failure(operation, std::move(text), &pending);
    group.fail_with("the group failed earlier: " + text, code, false, others);
  }
  return make_error(code, text);
}

std::string Endings::report_failure(Operation& operation, std::string text, const std::vector<int>* pending) {
  observers_.each(operation.numbers, [&](Observer& o, const auto& number) {
    o.failed(operation, number, Clock::now(), text, pending);
  });
  return text + observers_.group_failed(text);
}

std::string Endings::timeout_text(const Operation& operation, Waiting waiting,
                                  const std::vector<int>& peers) const {
  std::ostringstream text;
  const OperationInfo& info = operation.info();
  using Seconds = std::chrono::duration<double>;
  text << "timed out after " << Seconds(Clock::now() - info.issued).count() << " s (its timeout is "
       << Seconds(info.deadline - info.issued).count() << " s): " << operation.describe();
  if (waiting == Waiting::ForTheRole) {
    text << "; another thread has been busy or stuck inside the MPI library for longer than that";
  } else if (waiting == Waiting::ForItsTurn) {
    text << "; it had not started: earlier operations of the group have not completed";
  } else if (peers.empty() && operation.awaits_turn()) {
    text << "; an earlier operation of the group has not begun on all ranks, and this one waits for it";
  } else if (peers.empty()) {
    text << "; the MPI library's collective did not complete, or it had not started";
  } else if (peers.size() == 1 && peers.front() == kAnySource) {
    text << "; nothing arrived from any rank";
  } else if (peers.size() == 1 && peers.front() == operation.group().rank()) {
    text << "; still waiting for this rank itself, which has not called the matching isend or irecv";
  } else {
    text << "; still waiting for rank" << (peers.size() > 1 ? "s " : " ") << rank_list(peers);
  }
  const std::string quiet = options_.quiet ? options_.quiet(operation.group()) : "";
  if (!quiet.empty()) text << "; " << quiet;
  return text.str();
}

std::exception_ptr Endings::memory_error(const Operation& operation, std::string_view text) const noexcept {
  release_memory_reserve();
  try {
    return std::make_exception_ptr(NoMemory(operation.describe() + ": " + std::string(text)));
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

}  // namespace mpi_gdr
