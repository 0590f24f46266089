#include "engine/group_state.hpp"

namespace mpi_gdr {
namespace {

constexpr std::chrono::seconds kDepartureGrace(1);  // what a member sent before it left may arrive this late
constexpr std::chrono::milliseconds kSlow(2000);
constexpr int kMostAnnouncers = 32;

// Running operations never share a tag, whatever the user's limit and the transport's tags.
std::uint64_t most_in_flight(const GroupOptions& options, int max_tag, bool one_by_one) {
  return std::min<std::uint64_t>(one_by_one ? 1 : options.max_in_flight, CollectiveTags(max_tag).slots);
}

}  // namespace

GroupState::GroupState(GroupOptions options, std::unique_ptr<Transport> transport, bool one_by_one)
    : options_(std::move(options)),
      transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      max_tag_(transport_->max_tag()),
      windows_(most_in_flight(options_, max_tag_, one_by_one)),
      slow_after_(rank_ > kMostAnnouncers ? Clock::duration::max() / 4 : kSlow + rank_ * kSlow / 8) {}

GroupState::~GroupState() {
  // After an exit without Engine::close() the library must not be called.
  [[maybe_unused]] Transport* leaked = transport_.release();
}

void GroupState::fail_with(std::string_view reason, ErrorCode code, bool refused, Others others) noexcept {
  decltype(on_failure_) callbacks;
  {
    std::lock_guard lock(failure_mutex_);
    for (const auto& node : notified_)
      if (refused && node) node->publish_refused();
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      failure_ = reason;
    } catch (const std::bad_alloc&) {
      failure_ = "no memory";  // short: allocates nothing
    }
    failure_code_ = code;
    failed_.store(true, std::memory_order_release);
    // Before devices are unblocked: other ranks must not consume their results.
    for (const auto& node : notified_)
      if (node) node->publish_failed();
    callbacks.swap(on_failure_);
  }
  for (const auto& callback : callbacks)
    if (callback) callback();
  if (others == Others::Unaware && options_.on_failed) options_.on_failed(*this, failure());
}

std::string GroupState::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

ErrorCode GroupState::failure_code() const {
  std::lock_guard lock(failure_mutex_);
  return failure_code_;
}

void GroupState::notify_on_failure(Notified whose, std::shared_ptr<const ipc::NodeFlags> node) {
  std::lock_guard lock(failure_mutex_);
  if (node && failed()) node->publish_failed();
  notified_[static_cast<std::size_t>(whose)] = std::move(node);
}

void GroupState::on_failure(FailureOf what, std::function<void()> callback) {
  std::lock_guard lock(failure_mutex_);
  if (!failed()) on_failure_[static_cast<std::size_t>(what)] = std::move(callback);
}

void GroupState::depart(Departure departure) {
  std::lock_guard lock(failure_mutex_);
  departures_.push_back(std::move(departure));
  departed_.store(true, std::memory_order_release);
}

std::optional<Departure> GroupState::unreachable(const Operation& operation, Clock::time_point now) const {
  if (!departed_.load(std::memory_order_acquire)) return std::nullopt;
  const OperationInfo& info = operation.info();
  std::lock_guard lock(failure_mutex_);
  for (const Departure& departure : departures_) {
    if (info.channel == Channel::PointToPoint) {
      const std::vector<int> peers = operation.pending_peers();
      if (now - std::max(departure.when, operation.started_at()) > kDepartureGrace &&
          (departure.failed || std::find(peers.begin(), peers.end(), departure.rank) != peers.end()))
        return departure;
    } else if (info.sequence + info.sequences > departure.sequences[static_cast<int>(info.channel)]) {
      return departure;
    }
  }
  return std::nullopt;
}

std::uint64_t GroupState::sequence(Channel channel) const {
  std::lock_guard lock(issue_mutex_);
  return next_sequence_[static_cast<int>(channel)];
}

std::uint64_t GroupState::history(Channel channel) const {
  std::lock_guard lock(issue_mutex_);
  return history_[static_cast<std::size_t>(channel)];
}

std::optional<CallRecord> GroupState::called(Channel channel, std::uint64_t sequence) const {
  const std::unique_lock lock(issue_mutex_, std::try_to_lock);  // its holder may wait for a device
  if (!lock || sequence >= next_sequence_[static_cast<int>(channel)]) return std::nullopt;
  return records_[static_cast<std::size_t>(channel)][sequence % kRecords];
}

void GroupState::shut() {
  std::lock_guard lock(issue_mutex_);
  shut_ = true;
}

void GroupState::drop_transport() {
  if (failed()) {
    [[maybe_unused]] Transport* leaked = transport_.release();
  } else if (transport_) {
    transport_->close();
    transport_.reset();
  }
}

}  // namespace mpi_gdr
