// Adds a deadline to the calls of a store: torch's client has none, and an unreachable server closes no
// connection.
#pragma once

#include <string>

#include "bootstrap/kv_store.hpp"
#include "job/blocking_calls.hpp"

namespace mpi_gdr {

class WatchedStore : public KvStore {
 public:
  // `what`: the purpose. A call ends the process if `deadline` passes or the store or rank 0 is lost.
  WatchedStore(std::shared_ptr<KvStore> store, BlockingCalls& calls, std::string what,
               BlockingCalls::Clock::time_point deadline)
      : store_(std::move(store)), calls_(calls), what_(std::move(what)), deadline_(deadline) {}

  void set(const std::string& key, const std::string& value) override {
    const auto call = watch();
    store_->set(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    const auto call = watch();
    return store_->try_get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const auto call = watch();
    return store_->add(key, amount);
  }
  bool check(const std::string& key) override {
    const auto call = watch();
    return store_->check(key);
  }
  std::unique_ptr<KvStore> clone() override { return store_->clone(); }

 private:
  BlockingCalls::Call watch() { return {calls_, "a call to the job's store for " + what_, {}, deadline_}; }

  const std::shared_ptr<KvStore> store_;
  BlockingCalls& calls_;
  const std::string what_;
  const BlockingCalls::Clock::time_point deadline_;
};

}  // namespace mpi_gdr
