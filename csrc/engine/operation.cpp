#include "engine/operation.hpp"

#include <algorithm>
#include <sstream>

#include "diagnostics/trace.hpp"
#include "engine/group.hpp"

namespace mpigdr {

Operation::Operation(std::shared_ptr<Group> group, OperationInfo info,
                     std::vector<std::unique_ptr<Execution>> parts, std::shared_ptr<void> keepalive,
                     bool background, bool on_device)
    : group_(std::move(group)),
      info_(std::move(info)),
      parts_(std::move(parts)),
      part_done_(parts_.size(), false),
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
    if (part_done_[i]) continue;
    part_done_[i] = parts_[i]->advance();
    all &= part_done_[i];
  }
  while (first_unfinished_ < parts_.size() && part_done_[first_unfinished_]) ++first_unfinished_;
  return all;
}

std::uint64_t Operation::rounds_done() const {
  std::uint64_t rounds = check_ ? check_->rounds_done() : std::uint64_t{1};
  for (const auto& part : parts_) rounds += part->rounds_done();
  return rounds;
}

std::vector<int> Operation::pending_peers() const {
  if (check_) return check_->pending_peers();
  std::vector<int> peers;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!part_done_[i])
      for (int peer : parts_[i]->pending_peers()) peers.push_back(peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool Operation::keeps_to_memory() const {
  return !check_ &&
         std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->keeps_to_memory(); });
}

bool Operation::doorbell(shm::Doorbell& bell) const {
  return !check_ && parts_.size() == 1 && parts_.front()->doorbell(bell);
}

void Operation::abandon() noexcept {
  if (check_) check_->abandon();
  for (auto& part : parts_) part->abandon();
}

void Operation::retire() {
  if (info_.channel != Channel::PointToPoint) parts_.clear();  // messages tell their source afterwards
}

bool Operation::try_finish(std::exception_ptr error, Completer::Callbacks& callbacks) noexcept {
  std::lock_guard lock(mutex_);
  if (finished_.load(std::memory_order_relaxed)) return false;
  error_ = std::move(error);
  finished_at_ = Clock::now();
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
  if (!has_buffers_.exchange(false, std::memory_order_acq_rel)) return;
  std::shared_ptr<void> buffers;
  {
    std::lock_guard lock(mutex_);
    buffers.swap(keepalive_);
  }
}

std::string Operation::describe() const {
  std::ostringstream text;
  text << info_.name;
  if (info_.sequences) text << " seq=" << info_.sequence;
  if (!info_.detail.empty()) text << ' ' << info_.detail;
  if (!info_.algorithm.empty()) text << " algorithm=" << info_.algorithm;
  text << " group=" << group_->name() << " rank=" << group_->rank() << '/' << group_->size();
  return text.str();
}

TracedOperation traced(const Operation& operation) {
  const OperationInfo& info = operation.info();
  TracedOperation record;
  record.issued = to_nanoseconds(info.issued);
  record.started = to_nanoseconds(operation.started_at());
  record.name = info.name;
  record.group = operation.group().name();
  record.algorithm = info.algorithm;
  record.dtype = info.dtype;
  record.detail = info.detail;
  record.sequence = info.sequence;
  record.count = info.count;
  record.bytes = info.bytes;
  record.channel = info.channel;
  return record;
}

}  // namespace mpigdr
