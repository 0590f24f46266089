// All ranks of a job in this process, for tests of the engine: one Engine per rank over the loopback
// transport.
#pragma once

#include <condition_variable>

#include "diagnostics/trace.hpp"
#include "doubles/loopback.hpp"
#include "engine/engine.hpp"
#include "engine/group.hpp"
#include "test.hpp"
#include "transport/shm/node_transport.hpp"

using namespace mpi_gdr;

namespace engine_tests {

inline Env env_of(std::vector<std::pair<std::string, std::string>> values) {
  return Env([values = std::move(values)](const char* name) -> const char* {
    for (const auto& [key, value] : values)
      if (key == name) return value.c_str();
    return nullptr;
  });
}

struct Rank {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Group> group;
};

struct WorldOptions {
  LoopbackOptions loopback;
  EngineOptions engine;
  GroupOptions group{"test", 30s, 32};
  Env env = env_of({});
  std::vector<std::shared_ptr<Observer>> observers = {};  // one a rank; empty: none
  bool node = false;                                      // the ranks share memory
  bool kernel_copies = true;                              // for long messages on a node
  std::vector<shm::Arena*> arenas = {};                   // of the ranks with group memory
};

// Each rank maps the segments of its node, as processes do. Without a topology all ranks are on one node.
inline std::vector<std::shared_ptr<shm::NodeMemory>> make_node(int size,
                                                               const std::vector<shm::Arena*>& arenas = {},
                                                               const Topology* topology = nullptr) {
  std::vector<std::unique_ptr<shm::Segment>> segments;
  std::vector<std::string> tickets;
  for (int r = 0; r < size; ++r) {
    segments.push_back(
        std::make_unique<shm::Segment>(arenas.empty() ? nullptr : arenas[r], shm::message_bytes(size)));
    tickets.push_back(segments.back()->ticket());
  }
  std::vector<std::future<std::shared_ptr<shm::NodeMemory>>> made;
  for (int r = 0; r < size; ++r)
    made.push_back(std::async(std::launch::async, [&, r]() -> std::shared_ptr<shm::NodeMemory> {
      return shm::NodeMemory::create(std::move(segments[r]), r, tickets,
                                     std::chrono::steady_clock::now() + 60s, {},
                                     topology ? topology->members(topology->node(r)) : std::vector<int>{});
    }));
  std::vector<std::shared_ptr<shm::NodeMemory>> nodes;
  for (auto& m : made) nodes.push_back(m.get());
  return nodes;
}

struct World {
  explicit World(int size, WorldOptions options = {}) {
    auto transports = make_loopback(size, options.loopback);
    options.engine.oversubscribed = true;
    const auto nodes = options.node ? make_node(size, options.arenas, options.group.topology.get())
                                    : std::vector<std::shared_ptr<shm::NodeMemory>>(size);
    for (int r = 0; r < size; ++r) {
      Rank rank;
      auto engine = options.engine;
      if (!options.observers.empty()) engine.observers.push_back(options.observers[r]);
      rank.engine = Engine::create(engine);
      options.group.node = nodes[r];
      rank.group = std::make_shared<Group>(
          *rank.engine, options.group,
          shm::over_node_memory(std::move(transports[r]), nodes[r], options.kernel_copies),
          std::make_shared<Planner>(options.env));
      ranks.push_back(std::move(rank));
    }
  }
  // `body(rank)` on a thread per rank; rethrows the first error.
  void run(const std::function<void(int)>& body) { unit::on_threads(static_cast<int>(ranks.size()), body); }
  void close() {
    run([&](int r) {
      ranks[r].engine->close(*ranks[r].group);
      ranks[r].engine->shutdown();
    });
  }
  void run_and_close(const std::function<void(int)>& body) {
    run(body);
    close();
  }
  void wait(int r, const OperationPtr& operation) { ranks[r].engine->wait(*operation); }
  std::vector<Rank> ranks;
};

// Another group of the same ranks, by rank.
inline std::vector<std::shared_ptr<Group>> add_group(World& world, GroupOptions options,
                                                     LoopbackOptions loopback = {}, Env env = env_of({})) {
  auto transports = make_loopback(static_cast<int>(world.ranks.size()), loopback);
  std::vector<std::shared_ptr<Group>> group;
  for (std::size_t r = 0; r < world.ranks.size(); ++r)
    group.push_back(std::make_shared<Group>(*world.ranks[r].engine, options, std::move(transports[r]),
                                            std::make_shared<Planner>(env)));
  return group;
}

inline CollectiveCall all_reduce(const World& world, int rank, std::vector<float>& data,
                                 ReduceOp op = ReduceOp::Sum) {
  return {{.collective = Collective::AllReduce,
           .rank = rank,
           .size = static_cast<int>(world.ranks.size()),
           .count = data.size(),
           .dtype = DataType::Float32,
           .op = op},
          data.data(),
          data.data()};
}

inline OperationPtr start(World& world, int rank, std::vector<float>& data, IssueOptions options = {},
                          ReduceOp op = ReduceOp::Sum) {
  if (options.name.empty()) options.name = "all_reduce";
  return world.ranks[rank].group->issue({all_reduce(world, rank, data, op)}, std::move(options));
}

// Leaked: a peer may still write to the buffers of an abandoned operation.
inline std::vector<float>& unfreed(std::size_t count) { return *new std::vector<float>(count, 1.0f); }

inline IssueOptions foreground() {
  IssueOptions options;
  options.background = false;
  return options;
}

inline IssueOptions named(std::string_view name, IssueOptions options) {
  options.name = name;
  return options;
}

inline IssueOptions within(std::chrono::nanoseconds timeout) {
  IssueOptions options;
  options.timeout = timeout;
  return options;
}

inline OperationPtr start_message(World& world, int rank, MessageCall call, IssueOptions options = {}) {
  return world.ranks[rank].group->issue({call}, named(call.send ? "send" : "recv", std::move(options)));
}

// Waits as a Future does: the calling thread does not carry the operation.
inline void await_callback(const OperationPtr& operation) {
  std::promise<void> finished;
  operation->on_finished([&] { finished.set_value(); });
  finished.get_future().get();
}

}  // namespace engine_tests
