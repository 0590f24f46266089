#include "engine/operation.hpp"

#include <algorithm>
#include <sstream>
#include <thread>

#include "common/quiet_thread.hpp"
#include "engine/group_state.hpp"

namespace mpi_gdr {

constexpr std::string_view kAdaptive = "adaptive";  // Execution::chosen() names what it runs

Operation::Operation(std::shared_ptr<GroupState> group, Description&& description, const IssuedInfo& issued,
                     std::vector<Part> parts, std::shared_ptr<void> keepalive, bool background,
                     bool on_device)
    : group_(std::move(group)),
      info_{std::move(description), issued},
      parts_(std::move(parts)),
      background_(background),
      on_device_(on_device),
      keepalive_(std::move(keepalive)),
      has_buffers_(keepalive_ != nullptr) {}

bool Operation::advance() {
  if (check_) {
    if (!check_->advance()) return false;
    check_.reset();
  }
  bool all = true;
  for (std::size_t i = first_unfinished_; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.done) continue;
    part.done = part.execution->advance();
    if (const char* const chosen = part.execution->chosen(); chosen && info_.algorithm == kAdaptive)
      chosen_.store(chosen, std::memory_order_relaxed);
    all &= part.done;
  }
  while (first_unfinished_ < parts_.size() && parts_[first_unfinished_].done) ++first_unfinished_;
  return all;
}

std::uint64_t Operation::rounds_done() const {
  std::uint64_t rounds = check_ ? check_->rounds_done() : std::uint64_t{1};
  for (const Part& part : parts_) rounds += part.execution->rounds_done();
  return rounds;
}

std::vector<int> Operation::pending_peers() const {
  if (check_) return check_->pending_peers();
  std::vector<int> peers;
  for (const Part& part : parts_)
    if (!part.done)
      for (int peer : part.execution->pending_peers()) peers.push_back(peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool Operation::awaits_turn() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return !part.done && part.execution->awaits_turn(); });
}

bool Operation::uses_only_memory() const {
  return !check_ && std::all_of(parts_.begin(), parts_.end(),
                                [](const Part& part) { return part.execution->uses_only_memory(); });
}

bool Operation::doorbell(Doorbell& bell) const {
  return !check_ && parts_.size() == 1 && parts_.front().execution->doorbell(bell);
}

void Operation::abandon() noexcept {
  if (check_) check_->abandon();
  for (Part& part : parts_) part.execution->abandon();
}

void Operation::retire() {
  if (info_.channel != Channel::PointToPoint) parts_.clear();  // the source of a message is read later
}

bool Operation::try_finish(std::exception_ptr error, Clock::time_point now,
                           Completer::Callbacks& callbacks) noexcept {
  std::lock_guard lock(mutex_);
  if (finished_.load(std::memory_order_relaxed)) return false;
  error_ = std::move(error);
  finished_at_ = now;
  callbacks.swap(callbacks_);
  finished_.store(true, std::memory_order_release);
  return true;
}

void Operation::leak() noexcept {
  if (!leaked_.exchange(true, std::memory_order_acq_rel)) self_ = shared_from_this();
}

Clock::time_point Operation::started_at() const {
  const Clock::rep ticks = started_at_.load(std::memory_order_relaxed);
  return ticks ? Clock::time_point(Clock::duration(ticks)) : info_.issued;
}

void Operation::on_finished(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!finished_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Operation::release_buffers() {
  if (has_buffers_.exchange(false, std::memory_order_acq_rel)) keepalive_.reset();
}

std::string Operation::describe() const {
  std::ostringstream text;
  text << info_.name;
  if (info_.sequences) text << " seq=" << info_.sequence;
  if (!info_.detail.empty()) text << ' ' << info_.detail.str();
  if (!algorithm().empty()) text << " algorithm=" << algorithm();
  text << " group=" << group_->name() << " rank=" << group_->rank() << '/' << group_->size();
  return text.str();
}

void unblock_device(const OperationPtr& operation) noexcept {
  if (operation->release_device()) return;
  try {
    quiet_thread("mpigdr-release", [operation] {
      const auto patience = Clock::now() + std::chrono::minutes(10);
      while (!operation->release_device() && Clock::now() < patience)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }).detach();
  } catch (const std::exception&) {  // without a thread or memory, one attempt must do
  }
}

}  // namespace mpi_gdr
