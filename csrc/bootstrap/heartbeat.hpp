// The threads that drive a PeerWatch, and what happens when the store is lost.
//
// One thread looks at the processes and boards of this host and calls `on_tick`. Where this rank speaks for
// its host another one talks to the store, over a connection of its own, because a call to the store may
// hang; if it does, a third one tries another connection, since a network that comes back may be slow to
// revive an old one. They take no signals, no lock of Python's, and never call MPI.
//
// The store is lost with the process that serves it (a connection breaks, and no other one comes about at
// once), or if it does not answer for `silence`. With it goes all news of other hosts, so that their ranks
// count as lost, unless on_store_lost says otherwise. Losing it does not harm groups on one host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/peer_watch.hpp"

namespace mpi_gdr {

struct HeartbeatOptions {
  PeerWatchOptions watch;
  std::function<std::unique_ptr<KvStore>()> connect;  // called on the threads that talk
  PeerWatch::OnNews on_news;
  std::function<void(const std::string&)> on_store_quiet;  // it does not answer, and may yet
  // With the reason, once. The sentence with which all ranks on other hosts are given up; "": they are not.
  std::function<std::string(const std::string&)> on_store_lost;
  std::function<void()> on_tick;  // some times a second
};

// All members are thread-safe, but for the constructor and stop().
class Heartbeat {
 public:
  explicit Heartbeat(HeartbeatOptions options);  // starts the threads
  ~Heartbeat() { stop(std::chrono::milliseconds(1000)); }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // PeerWatch::say(), and waits until it is certain that other hosts will hear of it, or for `patience`.
  void say(News news, std::chrono::milliseconds patience);

  // The next look, and with it the next on_tick, comes at once.
  void look_soon();

  // What it has found out.
  const PeerWatch& peers() const;
  // Why there is no news from the store any more, or "".
  std::string store_lost() const;

  // Ends the threads. One that is stuck in the store beyond `patience` is left behind and makes no call any
  // more. Idempotent. Not from a callback.
  void stop(std::chrono::milliseconds patience);

 private:
  struct State;  // shared with the threads, which may outlive this
  const std::shared_ptr<State> state_;
};

}  // namespace mpi_gdr
