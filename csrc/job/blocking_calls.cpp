#include "job/blocking_calls.hpp"

#include <utility>

#include "bootstrap/watchdog.hpp"
#include "common/exit_status.hpp"
#include "job/end_process.hpp"

namespace mpi_gdr {

void BlockingCalls::look(const std::function<std::string(const std::vector<int>&)>& lost_among,
                         const std::function<std::string()>& store_lost) {
  constexpr std::chrono::seconds kGrace(3);  // the engine's stuck_grace
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (Call* call : calls_) {
    std::string lost = lost_among(call->ranks_.empty() ? std::vector<int>{0} : call->ranks_);
    if (lost.empty() && call->ranks_.empty())
      if (const std::string store = store_lost(); !store.empty()) lost = "the store is lost (" + store + ")";
    if (lost.empty() && now > call->deadline_) lost = "its deadline has passed";
    if (lost.empty()) continue;
    if (call->lost_ == Clock::time_point{}) call->lost_ = now;
    if (now - call->lost_ <= kGrace) continue;
    const std::string what = call->what_ + " does not return";
    end_process(kExitStuck, what + ": " + lost + last_words(what) + ". Ending this process");
  }
}

BlockingCalls::Call::Call(BlockingCalls& calls, std::string what, std::vector<int> ranks,
                          Clock::time_point deadline)
    : calls_(calls), what_(std::move(what)), ranks_(std::move(ranks)), deadline_(deadline) {
  const std::lock_guard lock(calls_.mutex_);
  calls_.calls_.push_back(this);
}

BlockingCalls::Call::~Call() {
  const std::lock_guard lock(calls_.mutex_);
  calls_.calls_.remove(this);
}

}  // namespace mpi_gdr
