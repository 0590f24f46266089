#include "bootstrap/heartbeat.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "common/log.hpp"
#include "common/quiet_thread.hpp"

namespace mpi_gdr {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// A talk that has been stuck for so long is tried over another connection, and then ever more rarely.
constexpr milliseconds kReconnect(20'000);
constexpr int kMostPending = 3;
// After a connection has broken: a server that lives has answered another one by then.
constexpr milliseconds kBroken(1000);

struct Superseded {};

}  // namespace

struct Heartbeat::State : std::enable_shared_from_this<State> {
  explicit State(HeartbeatOptions o)
      : options(std::move(o)), watch(options.watch, [this](const News& news, bool found_here) {
          if (!stopped())
            guarded("handle a notice of another rank", [&] { options.on_news(news, found_here); });
        }) {}

  const HeartbeatOptions options;
  PeerWatch watch;

  mutable std::mutex mutex;  // all below
  std::condition_variable changed;
  bool stopping = false;
  int running = 0;                            // threads
  bool look_soon = false, talk_soon = false;  // the next one shall come at once
  std::uint64_t looks = 0;                    // that have begun
  // Talks, each with a connection of its own; the one that was answered last counts.
  std::uint64_t talks = 0, current = 0;  // that have begun; the one that counts, 0: none
  int pending = 0;                       // that were not answered yet
  milliseconds patience{0};              // until another one is tried
  bool connected = false;                // the store has answered once
  steady_clock::time_point tried{};      // when the last talk began
  steady_clock::time_point contact{};    // when the store last answered
  std::string broken;                    // what ended the talk since then
  steady_clock::time_point broken_at{};

  // Memory may run out in whatever is called from here, and these threads must go on.
  template <typename F>
  static void guarded(const char* what, F&& call) noexcept {
    try {
      call();
    } catch (const std::exception& e) {
      log_fatal(std::string("the heartbeat could not ") + what + ": " + e.what());
    }
  }

  // A thread of its own, which holds this object to its end.
  void start(const char* name, std::function<void(State&)> body) {
    {
      const std::lock_guard lock(mutex);
      ++running;
    }
    try {
      quiet_thread(name, [self = shared_from_this(), body = std::move(body)] {
        body(*self);
        self->end();
      }).detach();
    } catch (...) {
      end();
      throw;
    }
  }

  void end() {
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_all();
  }

  bool stopped() const {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  void look() {
    bool told = false, was_quiet = false;
    auto before = steady_clock::now();
    while (!stopped()) {
      const auto now = steady_clock::now();
      {
        const std::lock_guard lock(mutex);
        ++looks;
        // This process itself did not run: what the store did meanwhile is not known.
        if (now - before > 4 * watch.look_pause() + milliseconds(2000)) contact = std::max(contact, now);
      }
      before = now;
      guarded("check the processes of this host", [&] {
        watch.look_around(now);
        options.on_tick();
        if (watch.speaks() && !watch.published()) {
          const std::lock_guard lock(mutex);
          talk_soon = true;
        }
        if (!watch.speaks()) return;
        if (const std::string reason = told ? "" : store_lost(); !reason.empty()) {
          told = true;
          if (const std::string text = options.on_store_lost(reason); !text.empty()) watch.lose_others(text);
        }
        const std::string quiet = told ? "" : store_quiet();
        if (!quiet.empty() && !was_quiet) options.on_store_quiet(quiet);
        was_quiet = !quiet.empty();
        if (const std::uint64_t next = told ? 0 : next_talk(now))
          start("mpigdr-beat", [next](State& state) { state.talk(next); });
      });
      std::unique_lock lock(mutex);
      changed.notify_all();  // talk_soon, and tests that count the looks
      changed.wait_for(lock, watch.look_pause(), [&] { return stopping || look_soon; });
      look_soon = false;
    }
  }

  // The number of a talk that shall begin now: the first one, or because the one that counts is stuck or has
  // ended; else 0.
  std::uint64_t next_talk(steady_clock::time_point now) {
    const std::lock_guard lock(mutex);
    const milliseconds reconnect = std::max(kReconnect, 4 * watch.talk_pause());
    if (pending == 0) patience = current == 0 && broken.empty() ? milliseconds(0) : reconnect;
    const bool lost_it = current == 0 && !broken.empty() && tried < broken_at;
    if (current != 0 && now - contact < reconnect) return 0;
    if (talks > 0 && !lost_it && now - tried < patience) return 0;
    if (pending >= kMostPending) return 0;
    if (current == 0 && broken.empty() && pending == 0) contact = now;  // the silence is counted from here
    patience *= 2;
    ++pending;
    tried = now;
    return ++talks;
  }

  steady_clock::duration silence_of_store() const {
    const std::lock_guard lock(mutex);
    return connected && talks > 0 ? steady_clock::now() - contact : steady_clock::duration{};
  }

  std::string no_answer() const {
    return "no answer for " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silence_of_store()).count()) +
           " s";
  }

  // Worth a warning, or "".
  std::string store_quiet() const {
    {
      const std::lock_guard lock(mutex);
      if (!connected) return broken;  // it may wait for a name server
    }
    return silence_of_store() > std::max(PeerWatch::kReport, 4 * watch.talk_pause()) ? no_answer() : "";
  }

  std::string store_lost() const {
    {
      const std::lock_guard lock(mutex);
      if (!connected) return "";
      if (!broken.empty() && steady_clock::now() - broken_at > kBroken) return broken;
    }
    const auto silence = options.watch.silence;
    return silence.count() > 0 && silence_of_store() > std::max(silence, 4 * watch.talk_pause()) ? no_answer()
                                                                                                 : "";
  }

  // One round, unless another thread has taken over: what this one has been stuck in is then of no account.
  // A KvStore of which each call may end so, because PeerWatch::talk() is only on one thread at a time.
  class Current : public KvStore {
    template <typename F>
    auto ask(F&& call) {
      check_current();
      auto answer = call();
      const std::unique_lock lock = check_current();
      state_.contact = steady_clock::now();
      return answer;
    }
    // Also orders what this thread has done to the watch before what the next one does.
    std::unique_lock<std::mutex> check_current() {
      std::unique_lock lock(state_.mutex);
      if (state_.current != talk_) throw Superseded();
      return lock;
    }

   public:
    Current(State& state, std::unique_ptr<KvStore> store, std::uint64_t talk)
        : state_(state), store_(std::move(store)), talk_(talk) {}
    void set(const std::string& key, const std::string& value) override {
      ask([&] {
        store_->set(key, value);
        return 0;
      });
    }
    std::optional<std::string> try_get(const std::string& key) override {
      return ask([&] { return store_->try_get(key); });
    }
    std::int64_t add(const std::string& key, std::int64_t amount) override {
      return ask([&] { return store_->add(key, amount); });
    }
    bool check(const std::string& key) override {
      return ask([&] { return store_->check(key); });
    }
    std::unique_ptr<KvStore> clone() override { return store_->clone(); }

   private:
    State& state_;
    const std::unique_ptr<KvStore> store_;
    const std::uint64_t talk_;
  };

  void talk(std::uint64_t mine) {
    bool answered = false;
    try {
      auto connection = options.connect();
      connection->check(options.watch.prefix);
      {
        const std::lock_guard lock(mutex);
        answered = connected = true;
        --pending;
        current = mine;
        contact = steady_clock::now();
        broken.clear();
      }
      Current store(*this, std::move(connection), mine);
      while (!stopped() && watch.speaks()) {
        watch.talk(store, steady_clock::now());
        std::unique_lock lock(mutex);
        changed.notify_all();
        changed.wait_for(lock, watch.talk_pause(), [&] { return stopping || talk_soon; });
        talk_soon = false;
      }
    } catch (const Superseded&) {
    } catch (const std::exception& e) {
      const std::string text = e.what();
      const std::lock_guard lock(mutex);
      if (current == mine || (!answered && current == 0 && broken.empty())) {
        broken = text.substr(0, text.find('\n'));  // torch adds a stack
        if (broken.empty()) broken = "an error without a message";
        broken_at = steady_clock::now();
      }
    }
    const std::lock_guard lock(mutex);
    if (!answered) --pending;
    if (current == mine) current = 0;
    changed.notify_all();
  }
};

Heartbeat::Heartbeat(HeartbeatOptions options) : state_(std::make_shared<State>(std::move(options))) {
  state_->start("mpigdr-look", [](State& state) { state.look(); });
}

void Heartbeat::say(News news, milliseconds patience) {
  State& s = *state_;
  s.watch.say(std::move(news));
  if (!s.watch.has_peers_elsewhere()) return;
  if (patience.count() == 0) return look_soon();
  std::unique_lock lock(s.mutex);
  // A look that begins now finds whether another rank of this host speaks: it has read the news, or will.
  const std::uint64_t enough = s.looks + 2;
  const auto until = steady_clock::now() + patience;
  while (!s.stopping && s.broken.empty() &&
         (s.looks < enough || (s.watch.speaks() && !s.watch.published()))) {
    s.look_soon = s.talk_soon = true;
    s.changed.notify_all();
    if (s.changed.wait_until(lock, std::min(until, steady_clock::now() + milliseconds(20))) ==
            std::cv_status::timeout &&
        steady_clock::now() > until)
      return;
  }
}

void Heartbeat::look_soon() {
  const std::lock_guard lock(state_->mutex);
  state_->look_soon = true;
  state_->changed.notify_all();
}

const PeerWatch& Heartbeat::peers() const { return state_->watch; }

std::string Heartbeat::store_lost() const { return state_->store_lost(); }

void Heartbeat::stop(milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, patience, [&] { return state_->running == 0; });
}

}  // namespace mpi_gdr
