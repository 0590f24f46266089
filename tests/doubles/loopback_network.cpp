#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bootstrap/rendezvous.hpp"
#include "common/error.hpp"
#include "doubles/loopback.hpp"

namespace mpi_gdr {
namespace {

// Endpoints that their ranks have not taken yet. Thread-safe.
class Groups {
 public:
  std::unique_ptr<Transport> take(const std::vector<int>& ranks, int tag, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<Transport>>& endpoints = made_[{ranks, tag}];
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    if (at == ranks.end()) fail(ErrorCode::InvalidUsage, "rank ", rank, " is not a member of the group");
    const auto index = static_cast<std::size_t>(at - ranks.begin());
    // Taken already, for an earlier group that the others never made.
    if (endpoints.empty() || !endpoints[index]) endpoints = make_loopback(static_cast<int>(ranks.size()));
    std::unique_ptr<Transport> own = std::move(endpoints[index]);
    if (std::none_of(endpoints.begin(), endpoints.end(), [](const auto& e) { return e != nullptr; }))
      made_.erase({ranks, tag});
    return own;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, int>, std::vector<std::unique_ptr<Transport>>> made_;
};

class LoopbackNetwork final : public Network {
 public:
  LoopbackNetwork(std::shared_ptr<Groups> groups, int size) : groups_(std::move(groups)), size_(size) {}

  void start(const NetworkOptions& o) override {
    if (o.size != size_)
      fail(ErrorCode::InvalidUsage, "size=", o.size, ", expected ", size_, ": as many as there are networks");
    if (!started_) renumber(o);
    started_ = true;
  }
  bool started() const override { return started_; }
  void renumber(const NetworkOptions& o) override {
    const auto deadline = std::chrono::steady_clock::now() + o.rendezvous_timeout;
    rendezvous(*o.store, o.key + "/start", o.rank, o.size, "", deadline, o.poll);
    const auto members = std::make_shared<Membership>();
    members->rank = o.rank;
    for (int r = 0; r < size_; ++r) {
      members->processes.push_back({std::string("n").append(std::to_string(r)), 0, r + 1, 0});
      members->node_of_rank.push_back(r);
    }
    const std::lock_guard lock(mutex_);
    members_ = members;
  }
  bool can_finalize() const noexcept override { return started_; }
  bool finalize(bool orderly, std::optional<std::uint64_t>& sum,
                const std::function<std::string()>& missing) noexcept override {
    sum.reset();
    return started_ && orderly && !failed() && (!missing || missing().empty());
  }
  void mark_failed(const char* why) noexcept override {
    const char* none = nullptr;
    failure_.compare_exchange_strong(none, why);
  }
  const char* failure() const noexcept override { return failure_; }
  std::shared_ptr<const Membership> membership() const override {
    const std::lock_guard lock(mutex_);
    return members_;
  }
  void on_abort(std::function<void(const std::string&)> announce) override {}
  bool gpu_aware() const override { return false; }
  NetworkInfo info() const override { return {.version = "threads of one process"}; }
  void broadcast(std::string&, int, std::chrono::milliseconds) override {}
  int handle(const Transport&) const override { return 0; }
  std::vector<std::string> summary() const override { return {"threads of one process"}; }
  std::unique_ptr<Transport> make_group(const GroupTransportOptions& o) override {
    return groups_->take(o.ranks, o.tag, membership()->rank);
  }

 private:
  const std::shared_ptr<Groups> groups_;
  const int size_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Membership> members_;
  std::atomic<bool> started_{false};
  std::atomic<const char*> failure_{nullptr};
};

}  // namespace

std::vector<std::unique_ptr<Network>> make_loopback_networks(int size) {
  const auto groups = std::make_shared<Groups>();
  std::vector<std::unique_ptr<Network>> all;
  for (int r = 0; r < size; ++r) all.push_back(std::make_unique<LoopbackNetwork>(groups, size));
  return all;
}

}  // namespace mpi_gdr
