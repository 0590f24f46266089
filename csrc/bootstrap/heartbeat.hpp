// The threads that drive a PeerWatch, and what happens when the store is lost.
//
// Two threads, because a call to the store may hang: one looks at the processes of this host and calls
// `on_tick`, one talks to the store over a connection of its own. They take no signals, no lock of Python's,
// and never call MPI. A store that fails or does not answer for `silence` is lost: with it all news of other
// hosts. That is told once, through on_store_lost, on the thread that looks around; never if silence is 0.
// Losing it harms nobody who stays on one host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/peer_watch.hpp"

namespace mpigdr {

struct HeartbeatOptions {
  PeerWatchOptions watch;
  std::function<std::unique_ptr<KvStore>()> connect;  // called once, on the thread that talks
  std::function<void(const News&)> on_news;
  std::function<void(const std::string&)> on_store_lost;  // the reason
  std::function<void(const std::string&)> on_abort;       // what stands at the abort key; within a round
  std::function<void()> on_tick;                          // some times a second
};

// All members are thread-safe, but for the constructor and stop().
class Heartbeat {
 public:
  explicit Heartbeat(HeartbeatOptions options);  // starts the threads
  ~Heartbeat() { stop(std::chrono::milliseconds(1000)); }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Tells the others what PeerWatch::leave() says, and waits until that stands in the store, or for
  // `patience`. Each kind once; later calls do nothing.
  void leave(News news, std::chrono::milliseconds patience);

  std::string missing() const;
  std::string lost_among(const std::vector<int>& ranks, bool or_left = false) const;

  // Why there is no news from the store any more, or "".
  std::string store_lost() const;

  // Ends the threads. One that is stuck in the store beyond `patience` is left behind and calls nobody any
  // more. Idempotent. Not from a callback.
  void stop(std::chrono::milliseconds patience);

 private:
  struct State;  // shared with the threads, which may outlive this
  const std::shared_ptr<State> state_;
};

}  // namespace mpigdr
