// Work of simulated streams that is recorded instead of run, and then run any number of times: what a CUDA
// graph is, with its rules. A stream gets into a capture by waiting for what is in it, and has to be joined
// again before the end. What the streams of a capture do not order among themselves runs in another order
// each time.
//
// Threads: SimCapture and SimGraph::order() may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace mpigdr {

// A capture under way. Its streams have numbers, the one that began it 0. Throws InvalidUsage after its end.
class SimCapture {
 public:
  // Runs on a worker; returns false while it must wait (it is then called again), describes what for in the
  // string.
  using Item = std::function<bool(std::string* waits_for)>;
  // What comes before something: so many items of each stream.
  using Past = std::vector<std::uint64_t>;
  struct Recorded {
    Item item;
    std::size_t stream;
    Past past;
  };

  std::size_t add_stream();
  void record(std::size_t stream, Item item);
  Past past(std::size_t stream);
  // What `stream` records from now on comes behind that.
  void order(const Past& past, std::size_t stream);
  bool ended();
  // Throws if a stream has recorded what stream 0 is not behind; it has ended then as well.
  std::vector<Recorded> end();

 private:
  void check_locked() const;

  std::mutex mutex_;
  std::vector<Past> streams_;
  std::vector<Recorded> items_;
  bool ended_ = false;
};

class SimGraph {
 public:
  SimGraph(std::vector<SimCapture::Recorded> items, std::uint64_t seed)
      : items_(std::move(items)), random_(seed) {}
  // All items, one of the orders that the streams allow.
  std::vector<SimCapture::Item> order();
  std::size_t size() const { return items_.size(); }

 private:
  const std::vector<SimCapture::Recorded> items_;
  std::mutex mutex_;
  std::mt19937_64 random_;
};

}  // namespace mpigdr
