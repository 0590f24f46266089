// Ranks that watch each other, on a clock of the test.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/peer_watch.hpp"
#include "memory_store.hpp"

namespace mpi_gdr {

using namespace std::chrono_literals;

// Ranks on `hosts` whose processes are in the given `states`.
struct WatchedRanks {
  explicit WatchedRanks(std::vector<int> hosts, std::chrono::milliseconds silence = 300s) {
    const int size = static_cast<int>(hosts.size());
    for (int r = 0; r < size; ++r)
      processes.push_back(
          {"h" + std::to_string(hosts[r]), static_cast<std::uint64_t>(hosts[r] + 1), 100 + r, 1});
    states.assign(hosts.size(), ProcessState::Runs);
    heard.resize(hosts.size());
    found.resize(hosts.size());
    silent.assign(hosts.size(), false);
    std::vector<std::shared_ptr<Boards>> boards(hosts.size());
    for (auto& b : boards) {
      b = std::make_shared<Boards>();
      b->own = std::make_unique<Board>();
    }
    for (int r = 0; r < size; ++r)
      for (int other = 0; other < size; ++other)
        boards[r]->peers.push_back(other != r && hosts[other] == hosts[r]
                                       ? BoardReader::open(boards[other]->own->ticket())
                                       : nullptr);
    for (int r = 0; r < size; ++r) {
      PeerWatchOptions o;
      o.rank = r;
      o.processes = processes;
      o.boards = boards[r];
      o.prefix = "job";
      o.silence = silence;
      o.probe = [this](const ProcessId& p) { return states[p.pid - 100]; };
      watches.push_back(std::make_unique<PeerWatch>(o, [this, r](const News& news, bool found_here) {
        heard[r].push_back(news);
        if (found_here) found[r].push_back(news);
      }));
    }
  }
  // In a second all look, speakers post, and all look again; ranks that do not run do neither, `silent` ones
  // never post.
  void second() {
    now += 1s;
    look();
    for (std::size_t r = 0; r < watches.size(); ++r)
      if (states[r] == ProcessState::Runs && watches[r]->speaks() && !silent[r]) watches[r]->talk(store, now);
    look();
  }
  void look() {
    for (std::size_t r = 0; r < watches.size(); ++r)
      if (states[r] == ProcessState::Runs) watches[r]->look_around(now);
  }
  void seconds(int n) {
    while (n-- > 0) second();
  }
  std::vector<News> of_kind(int rank, News::Kind kind) const {
    std::vector<News> all;
    for (const News& news : heard[rank])
      if (news.kind == kind) all.push_back(news);
    return all;
  }

  MemoryStore store;
  PeerWatch::Time now{1000s};
  std::vector<ProcessId> processes;
  std::vector<ProcessState> states;
  std::vector<bool> silent;
  std::vector<std::vector<News>> heard, found;
  std::vector<std::unique_ptr<PeerWatch>> watches;
};

inline News goodbye(int rank, bool meets_again = false) {
  News news;
  news.text = "rank " + std::to_string(rank) + " has left";
  news.meets_again = meets_again;
  return news;
}

using Kind = News::Kind;

}  // namespace mpi_gdr
