// A KvStore in memory whose clones share values. Counts requests, and can be made to throw or to block.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "bootstrap/kv_store.hpp"

namespace mpi_gdr {

class MemoryStore : public KvStore {
 public:
  struct Shared {
    std::mutex mutex;
    std::map<std::string, std::string> values;
    std::map<std::string, std::int64_t> counters;
    std::condition_variable changed;
    bool broken = false, hanging = false;
    int requests = 0;
  };
  explicit MemoryStore(std::shared_ptr<Shared> shared = std::make_shared<Shared>())
      : shared_(std::move(shared)) {}
  void set(const std::string& key, const std::string& value) override {
    with([&](Shared& s) { s.values[key] = value; });
  }
  std::optional<std::string> try_get(const std::string& key) override {
    std::optional<std::string> result;
    with([&](Shared& s) {
      if (s.values.count(key)) result = s.values[key];
    });
    return result;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    std::int64_t result = 0;
    with([&](Shared& s) { result = s.counters[key] += amount; });
    return result;
  }
  bool check(const std::string& key) override { return try_get(key).has_value(); }
  std::unique_ptr<KvStore> clone() override { return std::make_unique<MemoryStore>(shared_); }
  void break_down() {
    std::lock_guard lock(shared_->mutex);
    shared_->broken = true;
  }

  void hang(bool on = true) {
    std::lock_guard lock(shared_->mutex);
    shared_->hanging = on;
    shared_->changed.notify_all();
  }
  int requests() const {
    std::lock_guard lock(shared_->mutex);
    return shared_->requests;
  }

 private:
  template <typename F>
  void with(F f) {
    std::unique_lock lock(shared_->mutex);
    ++shared_->requests;
    shared_->changed.wait(lock, [&] { return !shared_->hanging; });
    if (shared_->broken) throw std::runtime_error("connection reset");
    f(*shared_);
  }
  std::shared_ptr<Shared> shared_;
};

}  // namespace mpi_gdr
