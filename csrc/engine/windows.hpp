#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "engine/operation.hpp"

namespace mpi_gdr {

class Windows {  // queued and running operations of a group, by channel; with the progress role
 public:
  // `in_flight`: maximum span of a channel's sequence numbers in flight; messages are unlimited.
  explicit Windows(std::uint64_t in_flight) : in_flight_(in_flight) {}

  void enqueue(OperationPtr operation) {
    windows_[static_cast<int>(operation->info().channel)].waiting.push_back(std::move(operation));
  }
  bool any_waits() const {
    return std::any_of(windows_.begin(), windows_.end(), [](const Window& w) { return !w.waiting.empty(); });
  }
  void start_ready(Channel channel, std::vector<OperationPtr>& started) {
    auto& [waiting, running] = windows_[static_cast<int>(channel)];
    const bool bounded = channel != Channel::PointToPoint;
    while (!running.empty() && running.front()->finished()) running.pop_front();
    while (!waiting.empty()) {
      const OperationInfo& info = waiting.front()->info();
      // One operation may exceed the window.
      if (bounded && !running.empty() &&
          info.sequence + info.sequences - running.front()->info().sequence >
              std::max(in_flight_, info.sequences))
        break;
      if (bounded) running.push_back(waiting.front());
      started.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
  }

 private:
  // `running` is in order and keeps finished operations behind an unfinished front, since the window bounds
  // the span of the sequence numbers: tags repeat beyond it.
  struct Window {
    std::deque<OperationPtr> waiting, running;
  };
  const std::uint64_t in_flight_;
  std::array<Window, kChannelCount> windows_;
};

}  // namespace mpi_gdr
