// The end of a group and of the engine, also when a thread is stuck inside the transport.
#include <vector>

#include "common/error.hpp"
#include "engine/backoff.hpp"
#include "engine/engine.hpp"

namespace mpigdr {

bool Engine::take_role(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (!role_.try_lock()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Engine::drain(GroupState& group) {
  const std::shared_ptr<Engine> self = shared_from_this();
  Backoff backoff(crowding_);
  while (group.outstanding() > 0 && !stuck()) try_pass(Releases::Here) ? backoff.moved() : backoff.idle({});
}

void Engine::close(GroupState& group) {
  const std::shared_ptr<Engine> self = shared_from_this();
  group.shut();
  drain(group);
  const bool role = take_role(std::chrono::seconds(1));
  if (!role || group.outstanding() > 0) {
    // A thread is, or was until just now, inside the transport for this group.
    group.fail_with("the group was destroyed while a thread was stuck in the MPI library");
  }
  if (!role) return;
  const std::lock_guard lock(role_, std::adopt_lock);
  const InTransport inside(pass_began_, Clock::now());
  try {
    start(group);  // lets go of the finished ones in its window
  } catch (const std::bad_alloc&) {
    fail_for_want_of_memory();
  }
  // No pass may ever come to them, and the program may use their buffers again: nobody is to write there any
  // longer. Of what goes through a library the next pass gives the requests up, if there is one, since that
  // may block.
  std::erase_if(active_, [&](const OperationPtr& operation) {
    if (&operation->group() != &group || !operation->finished() || !operation->keeps_to_memory())
      return false;
    operation->abandon();
    return true;
  });
  group.drop_transport();
}

bool Engine::stuck() const {
  const std::int64_t began = pass_began_.load(std::memory_order_acquire);
  return began != 0 && Clock::now().time_since_epoch() - Clock::duration(began) > options_.stuck_grace;
}

bool Engine::shutdown() {
  if (outstanding_.stopped()) return ended_well_;
  progress_thread_.stop(std::chrono::seconds(2));
  watch_.stop();
  const bool role = take_role(std::chrono::seconds(1));
  bool outstanding = outstanding_.background() > 0;
  end_background(nullptr, "the engine was shut down");
  // Nothing that could get stuck inside the transport, when a process wants to end: the requests stay as they
  // are.
  if (role)
    for (const OperationPtr& operation : active_) {
      outstanding |= !operation->finished();
      finish(*operation, std::make_exception_ptr(Error(
                             ErrorCode::Aborted, operation->describe() + ": the engine was shut down")));
      operation->leak();
    }
  outstanding_.stop();  // later submissions are refused; what slipped in just now is ended by its waiter
  left_behind_ = !role;
  ended_well_ = role && !outstanding;
  if (role) role_.unlock();
  completer_.stop(std::chrono::seconds(2));
  return ended_well_;
}

}  // namespace mpigdr
