// How one host learns at once that a process of another has ended: a TCP connection that never carries
// data. The kernel resets it when the process ends, however that happens, and keeps it while the process is
// stopped or the network is down.
//
// Threads: one at a time.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <string>
#include <vector>

namespace mpi_gdr {

// The end of the process that is watched. It accepts nothing: what stands in the queue of the listener is a
// connection already, and a stranger gets nothing but a place there.
class Lifeline {
 public:
  Lifeline();  // throws System
  // The one of this process, which only its end closes: a forked child does not keep it. Throws System.
  static const Lifeline& of_process();
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  // Where others may reach it: "port address address ...".
  std::string address() const;

 private:
  int listener_ = -1;
};

class LifelineWatch {
 public:
  explicit LifelineWatch(const std::string& address);  // of a Lifeline; of anything else nothing is known
  ~LifelineWatch();
  LifelineWatch(const LifelineWatch&) = delete;
  LifelineWatch& operator=(const LifelineWatch&) = delete;

  enum class State {
    Unknown,  // there is no connection, or not yet
    Holds,
    Ended  // there was one, it was reset, and its host says that no process listens any more
  };
  State look();  // does not wait

 private:
  struct Address {
    sockaddr_in6 address{};  // IPv4 mapped
    int socket = -1;
  };
  static bool connect(Address& to);  // false: no process listens there
  static void close(Address& to);

  std::vector<Address> addresses_;
  int held_ = -1;  // which of them
  bool was_held_ = false;
  std::chrono::steady_clock::time_point tried_{};
};

}  // namespace mpi_gdr
