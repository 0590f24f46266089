#include "torch/liveness.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/shared_memory.hpp"
#include "bootstrap/watchdog.hpp"
#include "common/env.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "transport/mpi/runtime.hpp"

namespace mpigdr::torch_binding {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kRemembered = 64;           // closed groups
constexpr std::chrono::seconds kBlockedGrace(3);  // as the engine's stuck_grace
constexpr std::size_t kFieldsPerGroup = 1 + kChannelCount;

[[noreturn]] void end_process(int status, const std::string& text) {
  log_fatal(text);
  unlink_mpich_shared_memory();
  ::_exit(status);
}

}  // namespace

void Liveness::begin(const std::string& prefix, std::function<std::unique_ptr<KvStore>()> connect) {
  if (mpi::size() == 1) return;
  HeartbeatOptions options;
  options.watch.rank = mpi::rank();
  options.watch.processes = mpi::processes();
  options.watch.prefix = prefix;
  options.watch.abort_key = mpi::abort_key();
  options.watch.silence = milliseconds(static_cast<std::int64_t>(Env::get().heartbeat_seconds * 1e3));
  options.connect = std::move(connect);
  options.on_news = [this](const News& news) { on_news(news); };
  options.on_store_lost = [this](const std::string& reason) { on_store_lost(reason); };
  options.on_abort = [](const std::string& text) { end_process(1, text + "; ending this process, too"); };
  options.on_tick = [this] { on_tick(); };
  if (const auto before = heartbeat()) {
    // Some may still be in the generation before: to them this rank has left it, not fallen silent.
    News news;
    news.text = describe(mpi::rank(), mpi::processes()[mpi::rank()]) + " has begun a new process group";
    news.meets_again = true;
    {
      const std::lock_guard lock(mutex_);
      for (const std::string& fields : closed_) news.details += fields;
    }
    before->leave(std::move(news), milliseconds(500));
    before->stop(milliseconds(1000));
  }
  auto started = std::make_shared<Heartbeat>(std::move(options));
  const std::lock_guard lock(mutex_);
  heartbeat_.swap(started);  // the one before ends after the lock does
  closed_.clear();
  left_.clear();
}

std::shared_ptr<Heartbeat> Liveness::heartbeat() const {
  const std::lock_guard lock(mutex_);
  return heartbeat_;
}

void Liveness::opened(Engine& engine, const std::shared_ptr<Group>& group, std::vector<int> members,
                      std::string key) {
  std::string lost;
  std::deque<News> left;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const Entry& e) { return e.group.expired(); });
    groups_.push_back({&engine, group.get(), group, members, key});
    left = left_;
  }
  // News that came while the group was made has not reached it.
  for (const News& news : left) depart({&engine, group, members, key}, news);
  if (lost = lost_among(members); !lost.empty()) engine.lose({group.get()}, lost);
}

void Liveness::closed(const Group& group) {
  std::vector<Open> open = open_groups();
  for (Open& o : open)
    if (o.group.get() == &group) {
      std::string fields = reached(*o.engine, group, o.key);
      const std::lock_guard lock(mutex_);
      closed_.push_back(std::move(fields));
      if (closed_.size() > kRemembered) closed_.pop_front();
    }
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const Entry& e) { return e.address == &group; });
}

std::vector<Liveness::Open> Liveness::open_groups() const {
  std::vector<Open> open;
  const std::lock_guard lock(mutex_);
  for (const Entry& e : groups_)
    if (auto group = e.group.lock()) open.push_back({e.engine, std::move(group), e.members, e.key});
  return open;
}

std::string Liveness::lost_among(const std::vector<int>& ranks, bool or_left) const {
  const auto watch = heartbeat();
  return watch ? watch->lost_among(ranks, or_left) : "";
}

std::string Liveness::explain(const Group& group) const {
  std::vector<int> members;
  for (const Open& open : open_groups())
    if (open.group.get() == &group) members = open.members;
  return explain(members);
}

std::string Liveness::explain(const std::vector<int>& members) const {
  const auto watch = heartbeat();
  if (!watch) return "";
  const auto& all = mpi::processes();
  // A process that is just being killed is there for some milliseconds more.
  for (int turn = 0; turn < 20; ++turn) {
    for (const int r : members)
      if (all[r].domain != 0 && all[r].domain == all[mpi::rank()].domain &&
          look_at(all[r]) == ProcessState::Ended)
        return describe(r, all[r]) + " is gone: its process has ended";
    if (const std::string lost = watch->lost_among(members); !lost.empty()) return lost;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return "";
}

std::string Liveness::missing() const {
  const auto watch = heartbeat();
  return watch ? watch->missing() : "";
}

void Liveness::on_news(const News& news) {
  // Of a stopped process nothing else may tell: whoever waits in torch's own store calls gets no error.
  log(news.kind == News::Kind::Silent ? LogLevel::Warn : LogLevel::Info, "ALIVE", news.text);
  if (ending_.load(std::memory_order_acquire)) return;
  const bool self = std::find(news.ranks.begin(), news.ranks.end(), mpi::rank()) != news.ranks.end();
  if (news.kind != News::Kind::Left) mpi::mark_failed();  // MPI_Finalize would wait for it
  if (news.kind == News::Kind::Left) {
    unpack(news.details);  // throws if it is no news of ours
    const std::lock_guard lock(mutex_);
    left_.push_back(news);
  }
  const std::vector<Open> open_now = open_groups();
  std::vector<Group*> lost;
  for (const Open& open : open_now) {
    if (news.kind == News::Kind::Left) {
      depart(open, news);
      continue;
    }
    const bool concerned = std::any_of(news.ranks.begin(), news.ranks.end(), [&](int rank) {
      return std::find(open.members.begin(), open.members.end(), rank) != open.members.end();
    });
    if (concerned) lost.push_back(open.group.get());
  }
  if (!lost.empty())  // the process has one engine
    open_now.front().engine->lose(lost,
                                  self ? "the other ranks go on without this one: " + news.text : news.text);
}

// Told twice (by opened() and on_news() at once) is as good as once.
void Liveness::depart(const Open& open, const News& news) {
  const std::vector<std::string> reached = unpack(news.details);
  for (const int rank : news.ranks) {
    const auto member = std::find(open.members.begin(), open.members.end(), rank);
    if (member == open.members.end()) continue;
    for (std::size_t i = 0; i + kFieldsPerGroup <= reached.size(); i += kFieldsPerGroup) {
      if (reached[i] != open.key) continue;
      Group::Departure departure;
      departure.rank = static_cast<int>(member - open.members.begin());
      departure.text = news.text;
      departure.when = Clock::now();
      for (int c = 0; c < kChannelCount; ++c)
        departure.sequences[c] = std::strtoull(reached[i + 1 + c].c_str(), nullptr, 10);
      open.group->depart(std::move(departure));
    }
  }
}

void Liveness::on_store_lost(const std::string& reason) {
  if (ending_.load(std::memory_order_acquire)) return;
  const std::string text =
      "the store of the job is gone (" + reason +
      "): the process that hosts it, rank 0 or torchrun's agent, has ended or cannot be reached";
  const auto& all = mpi::processes();
  const std::uint64_t here = all[mpi::rank()].domain;
  const std::vector<Open> open_now = open_groups();
  std::vector<Group*> lost;
  for (const Open& open : open_now) {
    // Of ranks on this host the other thread knows better.
    if (here != 0 &&
        std::all_of(open.members.begin(), open.members.end(), [&](int r) { return all[r].domain == here; }))
      continue;
    lost.push_back(open.group.get());
  }
  if (!lost.empty()) {
    mpi::mark_failed();
    open_now.front().engine->lose(lost, text + ", and nothing is heard of the ranks on other hosts");
  }
  if (!lost.empty() || log_enabled(LogLevel::Info))
    log(LogLevel::Warn, "ALIVE", text, "; ", lost.size(), " group(s) with ranks on other hosts fail");
}

void Liveness::on_tick() {
  const std::lock_guard lock(mutex_);
  if (blocking_.empty() || !heartbeat_) return;
  const auto now = Clock::now();
  for (Blocking* call : blocking_) {
    const std::string lost = missed_by(*call, *heartbeat_, now);
    if (lost.empty()) continue;
    if (call->lost_ == Clock::time_point{}) call->lost_ = now;
    if (now - call->lost_ > kBlockedGrace)
      end_process(kExitStuck, call->what_ + " does not return: " + lost +
                                  last_words(call->what_ + " does not return") + ". Ending this process");
  }
}

// Why this call may never return, or "".
std::string Liveness::missed_by(const Blocking& call, const Heartbeat& heartbeat, Clock::time_point now) {
  std::string lost = heartbeat.lost_among(call.ranks_.empty() ? std::vector<int>{0} : call.ranks_);
  if (lost.empty() && call.ranks_.empty() && !heartbeat.store_lost().empty())
    lost = "the store is lost (" + heartbeat.store_lost() + ")";
  if (lost.empty() && now > call.deadline_) lost = "its deadline has passed";
  return lost;
}

Liveness::Blocking::Blocking(Liveness& liveness, std::string what, std::vector<int> ranks,
                             Clock::time_point deadline)
    : liveness_(liveness), what_(std::move(what)), ranks_(std::move(ranks)), deadline_(deadline) {
  const std::lock_guard lock(liveness_.mutex_);
  liveness_.blocking_.push_back(this);
}

Liveness::Blocking::~Blocking() {
  const std::lock_guard lock(liveness_.mutex_);
  liveness_.blocking_.remove(this);
}

std::string Liveness::reached(Engine& engine, const Group& group, const std::string& key) const {
  std::vector<std::string> fields = {key};
  for (int c = 0; c < kChannelCount; ++c)
    fields.push_back(std::to_string(engine.first_unfinished(group, static_cast<Channel>(c))));
  return pack(fields);
}

void Liveness::end(const std::string& why) {
  ending_.store(true, std::memory_order_release);
  if (!heartbeat()) return;
  News news;
  news.text = describe(mpi::rank(), mpi::processes()[mpi::rank()]) + " has left the job: " + why;
  for (const Open& open : open_groups()) news.details += reached(*open.engine, *open.group, open.key);
  const std::lock_guard lock(mutex_);
  for (const std::string& fields : closed_) news.details += fields;
  farewell_ = std::move(news);
}

void Liveness::farewell(bool meets_again, milliseconds patience) {
  const auto watch = heartbeat();
  News news;
  {
    const std::lock_guard lock(mutex_);
    news = farewell_;
  }
  news.meets_again = meets_again;
  if (watch) watch->leave(std::move(news), patience);
}

void Liveness::give_up(milliseconds patience) {
  const auto watch = heartbeat();
  if (!watch) return;
  News news{News::Kind::Ended, {}, ""};
  news.text = describe(mpi::rank(), mpi::processes()[mpi::rank()]) + " has ended without MPI_Finalize";
  watch->leave(std::move(news), patience);
}

void Liveness::stop(milliseconds patience) {
  if (const auto watch = heartbeat()) watch->stop(patience);
}

}  // namespace mpigdr::torch_binding
