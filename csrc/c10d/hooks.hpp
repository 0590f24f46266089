// Functions that torch (since 2.14) adds and removes by number. Any thread, with or without the GIL. Hooks
// run and are destroyed without a lock, since Python's take the GIL: a removed one may still be running.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/log.hpp"

namespace mpi_gdr::torch_binding {

template <typename... Arguments>
class Hooks {
 public:
  using Hook = std::function<void(Arguments...)>;

  void add(std::int64_t id, Hook hook) { replace(id, std::make_shared<const Hook>(std::move(hook))); }
  void remove(std::int64_t id) { replace(id, nullptr); }
  bool any() const { return any_.load(std::memory_order_acquire); }

  // Calls the hooks in order of their numbers, and logs their exceptions. Throws bad_alloc.
  void call(const Arguments&... arguments) const {
    std::unique_lock lock(mutex_);
    const auto hooks = hooks_;
    lock.unlock();
    run(hooks, arguments...);
  }
  // The same, but removes them first: each is called once, also if threads call this at the same time.
  void call_once(const Arguments&... arguments) {
    std::unique_lock lock(mutex_);
    const auto hooks = std::exchange(hooks_, {});
    any_.store(false, std::memory_order_release);
    lock.unlock();
    run(hooks, arguments...);
  }

 private:
  using List = std::map<std::int64_t, std::shared_ptr<const Hook>>;

  static void run(const List& hooks, const Arguments&... arguments) {
    for (const auto& [id, hook] : hooks) try {
        (*hook)(arguments...);
      } catch (const std::exception& error) {
        log(LogLevel::Warn, "COLL", "hook ", id, " of torch's threw: ", error.what());
      }
  }
  void replace(std::int64_t id, std::shared_ptr<const Hook> hook) {  // null: removes
    std::unique_lock lock(mutex_);
    hooks_[id].swap(hook);
    if (!hooks_[id]) hooks_.erase(id);
    any_.store(!hooks_.empty(), std::memory_order_release);
    lock.unlock();  // before the old hook is destroyed
  }

  mutable std::mutex mutex_;  // hooks_, and writing any_
  List hooks_;
  std::atomic<bool> any_{false};
};

}  // namespace mpi_gdr::torch_binding
