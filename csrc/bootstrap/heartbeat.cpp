#include "bootstrap/heartbeat.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "common/log.hpp"
#include "common/quiet_thread.hpp"

namespace mpigdr {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Heartbeat::State : std::enable_shared_from_this<State> {
  explicit State(HeartbeatOptions o)
      : options(std::move(o)), watch(options.watch, [this](const News& news) {
          if (!stopped()) guarded("news of lost ranks", [&] { options.on_news(news); });
        }) {}

  const HeartbeatOptions options;
  PeerWatch watch;

  mutable std::mutex mutex;  // all below
  std::condition_variable changed;
  bool stopping = false;
  int running = 2;
  bool hurry = false;  // the next round with the store shall come at once
  std::uint64_t rounds = 0;
  bool connected = false;
  steady_clock::time_point contact = steady_clock::now();  // when the store last answered
  std::string lost;                                        // why it never will again
  std::set<News::Kind> said;                               // of this rank itself

  // Memory may run out in whatever is called from here, and these threads must go on.
  template <typename F>
  static void guarded(const char* what, F&& call) noexcept {
    try {
      call();
    } catch (const std::exception& e) {
      log_fatal(std::string("the heartbeat could not deal with ") + what + ": " + e.what());
    }
  }

  bool stopped() const {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  void look() {
    bool told = false, was_unsure = false;
    while (!stopped()) {
      guarded("a look at the processes of this host", [&] {
        watch.look_around(steady_clock::now());
        options.on_tick();
        if (const std::string reason = told ? "" : store_lost(); !reason.empty()) {
          told = true;
          options.on_store_lost(reason);
        }
      });
      const bool unsure = watch.unsure();
      std::unique_lock lock(mutex);
      if (unsure && !was_unsure) {
        hurry = true;
        changed.notify_all();
      }
      was_unsure = unsure;
      changed.wait_for(lock, unsure ? milliseconds(50) : watch.look_pause(), [&] { return stopping; });
    }
    end();
  }

  std::string store_lost() const {
    const auto silence = options.watch.silence;
    if (silence.count() == 0) return "";
    const std::lock_guard lock(mutex);
    const auto quiet = steady_clock::now() - contact;
    if (quiet < std::max(silence, 4 * watch.talk_pause())) return "";
    if (!lost.empty()) return lost;
    if (!connected) return "";  // it may wait for a name server
    return "no answer for " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(quiet).count()) + " s";
  }

  void talk() {
    try {
      const auto store = options.connect();
      {
        const std::lock_guard lock(mutex);
        connected = true;
        contact = steady_clock::now();
      }
      while (!stopped()) {
        watch.talk(*store, steady_clock::now());
        if (const auto reason = watch.abort_reason(); reason && !stopped()) options.on_abort(*reason);
        std::unique_lock lock(mutex);
        contact = steady_clock::now();
        ++rounds;
        changed.notify_all();
        changed.wait_for(lock, watch.talk_pause(), [&] { return stopping || hurry; });
        hurry = false;
      }
    } catch (const std::exception& e) {
      const std::string text = e.what();
      const std::lock_guard lock(mutex);
      lost = text.substr(0, text.find('\n'));  // torch adds a stack
      if (lost.empty()) lost = "an error without a message";
      changed.notify_all();
    }
    end();
  }

  void end() {
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_all();
  }
};

Heartbeat::Heartbeat(HeartbeatOptions options) : state_(std::make_shared<State>(std::move(options))) {
  quiet_thread("mpigdr-look", [state = state_] { state->look(); }).detach();
  try {
    quiet_thread("mpigdr-beat", [state = state_] { state->talk(); }).detach();
  } catch (...) {
    state_->end();
    stop(milliseconds(1000));
    throw;
  }
}

void Heartbeat::leave(News news, milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  if (state_->stopping || !state_->lost.empty() || !state_->said.insert(news.kind).second) return;
  state_->watch.leave(std::move(news));
  // The round that may be running has taken its news already.
  const std::uint64_t enough = state_->rounds + 2;
  const auto until = steady_clock::now() + patience;
  while (state_->rounds < enough && !state_->stopping && state_->lost.empty()) {
    state_->hurry = true;
    state_->changed.notify_all();
    if (state_->changed.wait_until(lock, until) == std::cv_status::timeout) return;
  }
}

std::string Heartbeat::missing() const { return state_->watch.missing(); }

std::string Heartbeat::lost_among(const std::vector<int>& ranks, bool or_left) const {
  return state_->watch.lost_among(ranks, or_left);
}

std::string Heartbeat::store_lost() const { return state_->store_lost(); }

void Heartbeat::stop(milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, patience, [&] { return state_->running == 0; });
}

}  // namespace mpigdr
