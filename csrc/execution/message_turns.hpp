// The order in which messages are posted where some wait for a device: MPI matches messages of one peer and
// tag in that order, and a later one may be ready first. Other messages must not wait: the device may need
// them first.
//
// Threads: take() with the lock under which calls get their order; a Turn by the holder of the progress role.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "execution/simple_executions.hpp"

namespace mpi_gdr {

class MessageTurns {
 public:
  using Posted = std::shared_ptr<std::atomic<bool>>;
  struct Turn {
    std::vector<Posted> before;  // messages to be posted first
    Posted posted = std::make_shared<std::atomic<bool>>(false);
  };

  Turn take(const MessageCall& call) {
    Turn turn;
    if (last_.size() > kMost) std::erase_if(last_, [](const auto& entry) { return entry.second->load(); });
    if (!call.send && call.peer == kAnySource) {  // may match what any other receive could
      for (const auto& [key, posted] : last_)
        if (!std::get<0>(key) && std::get<2>(key) == call.tag) turn.before.push_back(posted);
    } else {
      add({call.send, call.peer, call.tag}, turn);
      if (!call.send) add({false, kAnySource, call.tag}, turn);
    }
    last_[{call.send, call.peer, call.tag}] = turn.posted;
    return turn;
  }

 private:
  using Key = std::tuple<bool, int, int>;  // send, peer, tag
  void add(const Key& key, Turn& turn) const {
    if (const auto found = last_.find(key); found != last_.end()) turn.before.push_back(found->second);
  }
  static constexpr std::size_t kMost = 4096;  // a program may use a tag per message
  std::map<Key, Posted> last_;
};

}  // namespace mpi_gdr
