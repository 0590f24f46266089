// The ranks of a node over shared memory, in one process and without an engine.
#pragma once

#include "engine_world.hpp"
#include "transport/shm/node_transport.hpp"

namespace engine_tests {

inline constexpr auto kP2P = Channel::PointToPoint;

using Bytes = std::vector<std::uint8_t>;

inline Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes data(bytes);
  unsigned state = seed * 2654435761u + 12345u;
  for (auto& b : data) b = static_cast<std::uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return data;
}

struct NodeRanks {
  explicit NodeRanks(int size, bool kernel_copies = false, const std::vector<shm::Arena*>& arenas = {}) {
    auto loopback = make_loopback(size);
    nodes = make_node(size, arenas);
    for (int r = 0; r < size; ++r)
      ranks.push_back(shm::over_node_memory(std::move(loopback[r]), nodes[r], kernel_copies));
  }
  Transport& operator[](int r) { return *ranks[r]; }
  // From rank 0 to rank 1.
  std::pair<Request, Request> message(const void* from, void* to, std::size_t bytes, int tag = 0) {
    const Request sent = ranks[0]->isend(kP2P, from, bytes, 1, tag);
    return {sent, ranks[1]->irecv(kP2P, to, bytes, 0, tag)};
  }
  // Progresses all ranks in turn on the calling thread.
  void finish(std::vector<std::pair<int, Request>> requests) {
    for (int turns = 0; !requests.empty(); ++turns) {
      CHECK(turns < 1000000);
      std::erase_if(requests, [&](auto& r) { return (*this)[r.first].test(r.second); });
    }
  }
  std::vector<std::shared_ptr<shm::NodeMemory>> nodes;
  std::vector<std::unique_ptr<Transport>> ranks;
};

}  // namespace engine_tests
