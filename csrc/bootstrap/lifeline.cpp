#include "bootstrap/lifeline.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "common/error.hpp"

namespace mpi_gdr {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMostAddresses = 8;
constexpr int kQueue = 64;
constexpr std::chrono::seconds kTryAgain(5);

// Both families by one kind of socket; where IPv6 is switched off, IPv4 alone.
int make_socket() {
  const int made = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return made;
  const int off = 0;
  ::setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return made;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  bool loopback = false;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {"::ffff:127.0.0.1"};
  for (const ifaddrs* i = all; i && found.size() < kMostAddresses; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    char text[INET6_ADDRSTRLEN] = "";
    std::string address;
    if (i->ifa_addr->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
      address = std::string("::ffff:") + text;
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&six)) continue;  // means something on this host only
      ::inet_ntop(AF_INET6, &six, text, sizeof text);
      address = text;
    } else {
      continue;
    }
    if (i->ifa_flags & IFF_LOOPBACK)
      loopback = true;
    else
      found.push_back(address);
  }
  ::freeifaddrs(all);
  // Containers of one host may share it.
  if (found.empty() && loopback) found.push_back("::ffff:127.0.0.1");
  return found;
}

}  // namespace

Lifeline::Lifeline() : listener_(make_socket()) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  if (listener_ >= 0 && ::bind(listener_, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
      ::listen(listener_, kQueue) == 0)
    return;
  const int error = errno;
  if (listener_ >= 0) ::close(listener_);
  fail(ErrorCode::System, "a listening socket: ", std::strerror(error));
}

Lifeline::~Lifeline() { ::close(listener_); }

const Lifeline& Lifeline::of_process() {
  static int listener = -1;  // for the child, which may only make system calls
  static const Lifeline* const line = [] {
    const auto* made = new Lifeline;
    listener = made->listener_;
    ::pthread_atfork(nullptr, nullptr, [] { ::close(listener); });
    return made;
  }();
  return *line;
}

std::string Lifeline::address() const {
  sockaddr_in6 own{};
  socklen_t length = sizeof own;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length);
  std::string text = std::to_string(ntohs(own.sin6_port));
  for (const std::string& address : own_addresses()) text += ' ' + address;
  return text;
}

LifelineWatch::LifelineWatch(const std::string& address) {
  std::istringstream words(address);
  int port = 0;
  words >> port;
  if (port <= 0 || port > 0xffff) return;
  // An address that this host has, too, such as a bridge's, would lead back to it.
  const std::vector<std::string> own = own_addresses();
  std::vector<std::string> all, others;
  for (std::string word; words >> word && all.size() < kMostAddresses;) {
    all.push_back(word);
    if (std::find(own.begin(), own.end(), word) == own.end()) others.push_back(word);
  }
  for (const std::string& word : others.empty() ? all : others) {  // all: containers of one host share it
    Address to;
    to.address.sin6_family = AF_INET6;
    to.address.sin6_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET6, word.c_str(), &to.address.sin6_addr) == 1) addresses_.push_back(to);
  }
}

LifelineWatch::~LifelineWatch() {
  for (Address& to : addresses_) close(to);
}

void LifelineWatch::close(Address& to) {
  if (to.socket >= 0) ::close(to.socket);
  to.socket = -1;
}

bool LifelineWatch::connect(Address& to) {
  to.socket = make_socket();
  if (to.socket < 0 ||
      ::connect(to.socket, reinterpret_cast<const sockaddr*>(&to.address), sizeof to.address) == 0 ||
      errno == EINPROGRESS)
    return true;
  const bool refused = errno == ECONNREFUSED;
  close(to);
  return !refused;
}

LifelineWatch::State LifelineWatch::look() {
  const auto now = steady_clock::now();
  bool pending = false, refused = false;
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    Address& to = addresses_[i];
    if (to.socket < 0) continue;
    pollfd ready{to.socket, POLLOUT | POLLIN | POLLRDHUP, 0};
    if (::poll(&ready, 1, 0) == 0) {
      pending = true;
      continue;
    }
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(to.socket, SOL_SOCKET, SO_ERROR, &error, &length);
    if (ready.revents & (POLLIN | POLLRDHUP | POLLHUP | POLLERR) || error != 0) {
      // That of one that was held has to be asked for once more.
      refused |= error == ECONNREFUSED && was_held_;
      close(to);
      if (held_ == static_cast<int>(i)) {
        held_ = -1;
        tried_ = {};
      }
    } else if (held_ < 0) {
      held_ = static_cast<int>(i);
      was_held_ = true;
    }
  }
  if (held_ >= 0) {
    for (std::size_t i = 0; i < addresses_.size(); ++i)  // one is enough; it is the only one asked again
      if (static_cast<int>(i) != held_) close(addresses_[i]);
    if (addresses_.size() > 1) {
      addresses_ = {std::exchange(addresses_[static_cast<std::size_t>(held_)], Address{})};
      held_ = 0;
    }
    return State::Holds;
  }
  if (!refused && !pending && now - tried_ > kTryAgain) {
    tried_ = now;
    for (Address& to : addresses_) refused |= !connect(to) && was_held_;
  }
  return refused ? State::Ended : State::Unknown;
}

}  // namespace mpi_gdr
