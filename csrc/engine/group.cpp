#include "engine/group.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "common/memory_reserve.hpp"
#include "engine/engine.hpp"

namespace mpigdr {
namespace {

// What a member sent before it left may still be under way for so long.
constexpr std::chrono::seconds kDepartureGrace(1);

void keep_for_good(std::shared_ptr<const ipc::DeviceNode> node) {
  static_cast<void>(new std::shared_ptr<const ipc::DeviceNode>(std::move(node)));
}

}  // namespace

Group::Group(Engine& engine, GroupOptions options, std::unique_ptr<Transport> transport,
             std::shared_ptr<Planner> planner)
    : engine_(engine),
      options_(std::move(options)),
      transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      max_tag_(transport_->max_tag()),
      message_path_(transport_->message_path()),
      planner_(std::move(planner)),
      scratch_(engine.scratch()),
      flight_(engine.flight() ? engine.flight()->log() : nullptr),
      timeout_(options_.timeout) {
  keep_memory_reserve();
  if (!flight_) return;
  FlightLog::Group group{options_.name, "", options_.is_default, options_.uid, options_.members};
  if (group.members.empty())
    for (int r = 0; r < size_; ++r) group.members.push_back(r);
  flight_group_ = flight_->add_group(std::move(group));
}

Group::~Group() {
  // Engine::close() destroys the transport; without it (exit without destroy) nobody may touch the library
  // any more.
  [[maybe_unused]] Transport* leaked = transport_.release();
  // Nor the device, by whichever thread drops the last reference.
  if (device_node_) keep_for_good(std::move(device_node_));
}

std::uint64_t Group::tag_slots() const {
  return (static_cast<std::uint64_t>(max_tag_) + 1) / kTagsPerCollective;
}

void Group::describe(const std::string& description) {
  if (flight_) flight_->describe(flight_group_, description);
}

std::string Group::algorithm(const CollectiveSpec& spec) const {
  check(spec);
  if (failed()) fail(failure_code(), "the group failed earlier: ", failure());
  return choose(spec).algorithm->name;
}

Choice Group::choose(const CollectiveSpec& spec, bool on_device) const {
  return planner_->choice(spec, !on_device && has_native(spec), reach(on_device), options_.topology);
}

Reach Group::reach(bool on_device) const {
  if (!on_device) return options_.topology && options_.node ? Reach::Nodes : reach();
  return device_node_ && device_node_->size() == size_ ? Reach::Devices : Reach::None;
}

std::uint64_t Group::sequence(Channel channel) const {
  std::lock_guard lock(issue_mutex_);
  return next_sequence_[static_cast<int>(channel)];
}

void Group::share_devices(std::shared_ptr<const ipc::DeviceNode> node) {
  std::unique_lock lock(issue_mutex_);
  {
    std::lock_guard failure_lock(failure_mutex_);
    told_node_ = node;
    if (node && failed()) node->tell_failed();
  }
  device_node_.swap(node);
  lock.unlock();  // to let go of the one before may take long
  if (node && (failed() || captured_on_.load(std::memory_order_acquire))) keep_for_good(std::move(node));
}

void Group::fail_with(std::string_view reason, ErrorCode code, bool refused, Others others) noexcept {
  std::function<void()> told;
  {
    std::lock_guard lock(failure_mutex_);
    if (refused && told_node_) told_node_->tell_refused();
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      failure_ = reason;
    } catch (const std::bad_alloc&) {
      failure_ = "no memory";  // so short that it needs none
    }
    failure_code_ = code;
    failed_.store(true, std::memory_order_release);
    // Before any device is let go on: what it computes then must find nobody who believes it.
    if (told_node_) told_node_->tell_failed();
    told.swap(on_failure_);
  }
  if (told) told();
  if (others == Others::Unaware && options_.on_failed) options_.on_failed(*this, failure());
}

void Group::release_replays() const noexcept {
  if (const ipc::DeviceNode* const node = captured_on_.load(std::memory_order_acquire))
    node->release_replays();
}

void Group::depart(Departure departure) {
  std::lock_guard lock(failure_mutex_);
  departures_.push_back(std::move(departure));
  departed_.store(true, std::memory_order_release);
}

std::optional<Group::Departure> Group::unreachable(const Operation& operation, Clock::time_point now) const {
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

std::string Group::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

ErrorCode Group::failure_code() const {
  std::lock_guard lock(failure_mutex_);
  return failure_code_;
}

void Group::enqueue(OperationPtr operation) {
  windows_[static_cast<int>(operation->info().channel)].waiting.push_back(std::move(operation));
}

bool Group::any_waits() const {
  return std::any_of(windows_.begin(), windows_.end(), [](const Window& w) { return !w.waiting.empty(); });
}

void Group::start_ready(std::vector<OperationPtr>& started) {
  // Checked calls run one by one: which check ends first may differ between ranks, and the library's own
  // collectives must start in the same order on all of them.
  // No two running operations share a tag, however many the user allows and however few tags MPI has.
  const std::uint64_t in_flight = std::min<std::uint64_t>(options_.check_calls ? 1 : options_.max_in_flight,
                                                          std::max<std::uint64_t>(tag_slots(), 1));
  for (int c = 0; c < kChannelCount; ++c) {
    auto& [waiting, running] = windows_[c];
    const bool bounded = static_cast<Channel>(c) != Channel::PointToPoint;
    while (!running.empty() && running.front()->finished()) running.pop_front();
    while (!waiting.empty()) {
      const OperationInfo& info = waiting.front()->info();
      // A single operation may be wider than the window.
      if (bounded && !running.empty() &&
          info.sequence + info.sequences - running.front()->info().sequence >
              std::max<std::uint64_t>(in_flight, info.sequences))
        break;
      if (bounded) running.push_back(waiting.front());
      started.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
  }
}

void Group::shut() {
  std::lock_guard lock(issue_mutex_);
  shut_ = true;
}

void Group::drop_transport() {
  if (failed()) {
    [[maybe_unused]] Transport* leaked = transport_.release();
  } else if (transport_) {
    transport_->close();
    transport_.reset();
  }
}

}  // namespace mpigdr
