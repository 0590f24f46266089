#include "job/liveness.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "bootstrap/heartbeat.hpp"
#include "common/env.hpp"
#include "common/fnv1a.hpp"
#include "common/log.hpp"
#include "common/record.hpp"
#include "job/end_process.hpp"

namespace mpi_gdr {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kRemembered = 64;  // closed groups

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

// How far a rank took part in a group.
struct Part {
  std::string key;  // of the group
  std::array<std::uint64_t, kChannelCount> sequences;
};

std::vector<Part> parts_of(const News& news) {
  const std::vector<std::string> fields = unpack(news.details);
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 + kChannelCount <= fields.size(); i += 1 + kChannelCount) {
    Part& part = parts.emplace_back(Part{fields[i], {}});
    for (std::size_t c = 0; c < kChannelCount; ++c)
      part.sequences[c] = RecordReader("the progress of another rank", pack({fields[i + 1 + c]}))
                              .number<std::uint64_t>("operations");
  }
  return parts;
}

}  // namespace

std::string Liveness::own_name() const { return describe(rank(), network_.membership()->own()); }

bool Liveness::on_this_host(int rank) const {
  const auto all = network_.membership();
  const std::uint64_t here = all->own().domain;
  return here != 0 && all->processes[static_cast<std::size_t>(rank)].domain == here;
}

void Liveness::end_generation() {
  const auto before = heartbeat();
  if (!before) return;
  // Some may still be in the generation before: to them this rank has left it, not fallen silent.
  News news;
  news.text = own_name() + " has begun a new process group";
  news.meets_again = true;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& fields : closed_) news.details += fields;
  }
  before->say(std::move(news), milliseconds(500));
  before->stop(milliseconds(1000));
  const std::lock_guard lock(mutex_);
  heartbeat_.reset();
  closed_.clear();
  left_.clear();
}

void Liveness::begin(const std::string& prefix, std::function<std::unique_ptr<KvStore>()> connect) {
  const auto members = network_.membership();
  const Membership& all = *members;
  if (!orphan_.begin() && all.size() == 1) return;
  HeartbeatOptions options;
  options.watch.rank = all.rank;
  options.watch.processes = all.processes;
  options.watch.boards = all.boards;
  options.watch.prefix = prefix;
  options.watch.silence = milliseconds(static_cast<std::int64_t>(Env::get().heartbeat_seconds * 1e3));
  options.connect = std::move(connect);
  options.on_news = [this](const News& news, bool found_here) { on_news(news, found_here); };
  options.on_store_quiet = [](const std::string& reason) {
    log(LogLevel::Warn, "ALIVE", "the store of the job: ", reason,
        "; the process that hosts it, rank 0 or torchrun's agent, is stopped or unreachable");
  };
  options.on_store_lost = [this](const std::string& reason) { return on_store_lost(reason); };
  options.on_tick = [this] { on_tick(); };
  auto started = std::make_shared<Heartbeat>(std::move(options));
  network_.on_abort([this](const std::string& text) {
    if (const auto watch = heartbeat()) watch->say({News::Kind::Aborted, {}, text}, milliseconds(1500));
  });
  const std::lock_guard lock(mutex_);
  heartbeat_ = std::move(started);
}

std::shared_ptr<Heartbeat> Liveness::heartbeat() const {
  const std::lock_guard lock(mutex_);
  return heartbeat_;
}

void Liveness::opened(Engine& engine, const std::shared_ptr<GroupState>& group, std::vector<int> members,
                      std::string key) {
  const Known known{&engine, std::move(members), std::move(key)};
  std::deque<News> left;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const Entry& e) { return e.group.expired(); });
    groups_.push_back({known, group.get(), group});
    left = left_;
  }
  // News that came while the group was made has not reached it.
  for (const News& news : left) depart({known, group}, news);
  if (const std::string lost = lost_among(known.members); !lost.empty()) engine.lose({group.get()}, lost);
}

void Liveness::closed(const GroupState& group) {
  tell_failures();
  for (const Open& open : open_groups())
    if (open.group.get() == &group) {
      std::string fields = reached(open);
      if (group.failed())
        comparable_.store(false, std::memory_order_relaxed);
      else
        checksum_.fetch_add(checksum_of(open), std::memory_order_relaxed);
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
    if (auto group = e.group.lock()) open.push_back({e, std::move(group)});
  return open;
}

std::string Liveness::lost_among(const std::vector<int>& ranks, bool or_left) const {
  const auto watch = heartbeat();
  return watch ? watch->peers().lost_among(ranks, or_left) : "";
}

std::vector<int> Liveness::members_of(const GroupState& group) const {
  for (Open& open : open_groups())
    if (open.group.get() == &group) return std::move(open.members);
  return {};
}

std::string Liveness::explain(const GroupState& group) const { return explain(members_of(group)); }

std::string Liveness::quiet(const GroupState& group) const {
  const auto watch = heartbeat();
  if (!watch) return "";
  const std::vector<int> members = members_of(group);
  const auto now = network_.membership();
  const auto& all = now->processes;
  for (const int r : members)  // what the heartbeat finds a while later
    if (r != rank() && on_this_host(r) && look_at(all[r]) == ProcessState::Stopped)
      return describe(r, all[r]) + " is stopped (by SIGSTOP or job control)";
  return watch->peers().quiet_among(members);
}

std::string Liveness::explain(const std::vector<int>& members) const {
  const auto watch = heartbeat();
  if (!watch) return "";
  const auto now = network_.membership();
  const auto& all = now->processes;
  // A process that is just being killed is there for some milliseconds more.
  for (int turn = 0; turn < 20; ++turn) {
    for (const int r : members)
      if (on_this_host(r) && look_at(all[r]) == ProcessState::Ended)
        return describe(r, all[r]) + " is gone: its process has ended";
    if (const std::string lost = watch->peers().lost_among(members); !lost.empty()) return lost;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return "";
}

std::string Liveness::missing() const {
  const auto watch = heartbeat();
  if (!watch) return "";
  const std::string lost = watch->peers().missing();
  // Rank 0 serves it, as a rule, and would do so until the last meeting.
  return lost.empty() && !watch->store_lost().empty() ? "the store of the job is gone" : lost;
}

void Liveness::on_news(const News& news, bool found_here) {
  const bool self = contains(news.ranks, rank());
  // Of a stopped process nothing else may say so: a thread in torch's own store calls gets no error. One
  // rank says it for all.
  if (news.kind == News::Kind::Slow && !self) slow_calls_.receive(news);
  const bool may_return = news.kind == News::Kind::Quiet || news.kind == News::Kind::Back;
  const bool loud = found_here && (may_return || news.kind == News::Kind::Silent);
  log(loud ? LogLevel::Warn : LogLevel::Info, "ALIVE", news.text);
  if (ending_.load(std::memory_order_acquire) || may_return || news.kind == News::Kind::Slow) return;
  if (news.kind == News::Kind::Aborted) {
    const std::lock_guard lock(mutex_);
    if (self || !aborted_.empty()) return;
    aborted_ = news.text;
    aborted_at_ = Clock::now();
    return;
  }
  if (news.kind == News::Kind::Ended || news.kind == News::Kind::Silent) return lose(news);
  if (self) return;
  parts_of(news);  // throws if it is no news of ours
  {
    const std::lock_guard lock(mutex_);
    left_.push_back(news);
  }
  bool concerned = false;
  const std::vector<Open> open_now = open_groups();
  for (const Open& open : open_now) concerned |= depart(open, news) && !open.group->failed();
  // Also where nothing of the group is under way here: a launcher may end this process any moment.
  if (concerned && !news.meets_again) open_now.front().engine->observers().failed_elsewhere(news.text);
}

void Liveness::lose(const News& news) {
  network_.mark_failed("a rank was lost");  // MPI_Finalize would wait for it
  const bool self = contains(news.ranks, rank());
  const std::vector<Open> open_now = open_groups();
  std::vector<GroupState*> lost;
  for (const Open& open : open_now)
    if (std::ranges::any_of(news.ranks, [&](int rank) { return contains(open.members, rank); }))
      lost.push_back(open.group.get());
  if (!lost.empty())  // the process has one engine
    open_now.front().engine->lose(
        lost, self ? "the other ranks continue without this one: " + news.text : news.text);
}

// Being notified twice (by opened() and on_news() at once) does no harm.
bool Liveness::depart(const Open& open, const News& news) {
  const std::vector<Part> parts = parts_of(news);
  bool concerned = false;
  for (const int rank : news.ranks) {
    const auto member = std::find(open.members.begin(), open.members.end(), rank);
    if (member == open.members.end()) continue;
    for (const Part& part : parts) {
      if (part.key != open.key) continue;
      open.group->depart({.rank = static_cast<int>(member - open.members.begin()),
                          .text = news.text,
                          .sequences = part.sequences,
                          .when = Clock::now(),
                          .failed = !news.meets_again});
      concerned = true;
    }
  }
  return concerned;
}

// By another thread, or after the call: the caller may hold locks of the group and of the engine.
void Liveness::failed(const GroupState& group, const std::string& reason) noexcept {
  try {
    const auto watch = heartbeat();
    if (!watch || ending_.load(std::memory_order_acquire)) return;
    {
      const std::lock_guard lock(mutex_);
      for (Entry& entry : groups_)
        if (entry.address == &group && !entry.group.expired()) {
          entry.unfinished = group.outstanding();
          entry.failure = reason;
          notified_ = Clock::now();
        }
    }
    watch->look_soon();
  } catch (const std::exception& e) {
    log_fatal(std::string("a failed group could not be published to the other ranks: ") + e.what());
  }
}

void Liveness::tell_failures() {
  const auto watch = heartbeat();
  if (!watch) return;
  std::vector<Open> failed;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& e : groups_)
      if (auto group = e.group.lock(); group && !e.failure.empty()) {
        failed.push_back({e, std::move(group)});
        e.failure.clear();
      }
  }
  for (const Open& open : failed) {
    News news{News::Kind::Failed, {}, ""};
    news.text = own_name() + " has left group " + open.group->name() + ": " + open.failure;
    news.details = reached(open);
    watch->say(std::move(news), milliseconds(0));
  }
}

std::string Liveness::unsettled() const {
  for (const Open& open : open_groups())
    if (open.group->failed())
      return "group " + open.group->name() + " has failed" +
             (open.group->failure_thrown() ? "" : ": " + open.group->failure());
  return "";
}

std::string Liveness::on_store_lost(const std::string& reason) {
  if (ending_.load(std::memory_order_acquire)) return "";
  const std::string server = "the store of the job is gone (" + reason + ")";
  // Rank 0, which may serve it, said goodbye before it ended: then no rank is lost.
  std::vector<int> left;
  {
    const std::lock_guard lock(mutex_);
    for (const News& news : left_)
      if (news.kind == News::Kind::Left) left.insert(left.end(), news.ranks.begin(), news.ranks.end());
  }
  if (contains(left, 0)) {
    // At the end of a job this rank needs nobody elsewhere, and it is no matter.
    const auto needed = [&](int member) {
      return member != rank() && !on_this_host(member) && !contains(left, member);
    };
    const std::vector<Open> open_now = open_groups();
    const bool matters = std::ranges::any_of(
        open_now, [&](const Open& open) { return std::ranges::any_of(open.members, needed); });
    log(matters ? LogLevel::Warn : LogLevel::Info, "ALIVE", server,
        " since rank 0 has left: failures of ranks on other hosts are not detected");
    return "";
  }
  return server +
         ": the process that hosts it, rank 0 or torchrun's agent, has ended or is unreachable, and "
         "failures of ranks on other hosts are not detected";
}

void Liveness::on_tick() {
  if (!ending_.load(std::memory_order_acquire)) orphan_.look();
  tell_failures();
  std::shared_ptr<Heartbeat> watch;
  {
    const std::lock_guard lock(mutex_);
    watch = heartbeat_;
    // Not before other hosts can hear of it.
    if (!aborted_.empty() && watch &&
        (watch->peers().published() || Clock::now() - aborted_at_ > milliseconds(1500)))
      end_process(1, aborted_ + "; this process ends too");
  }
  if (watch && !ending_.load(std::memory_order_acquire)) compare_slow_calls(*watch);
  if (watch)
    blocking_.look([&](const std::vector<int>& ranks) { return watch->peers().lost_among(ranks); },
                   [&] { return watch->store_lost(); });
}

void Liveness::compare_slow_calls(Heartbeat& watch) {
  if (slow_calls_.idle()) return;
  const std::vector<Open> open = open_groups();
  std::vector<SlowCalls::Group> groups;
  for (const Open& one : open) groups.push_back({one.group, one.key});
  slow_calls_.look(
      groups, [&](News news) { watch.say(std::move(news), milliseconds(0)); },
      [&](GroupState& group, const std::string& text) {
        open.front().engine->abort(group, text, ErrorCode::Mismatch);
      });
}

// A hash of the group's calls, times a weight for each member: the weights of all of them are 0 together.
std::uint64_t Liveness::checksum_of(const Open& open) {
  Fnv1a calls;
  for (const Channel channel : {Channel::Collective, Channel::Accelerator})
    calls.add_word(open.group->history(channel));
  const auto weight = [&](int rank) {
    Fnv1a hash;
    hash.add(open.key);
    hash.add_word(static_cast<std::uint64_t>(rank));
    return hash.value() | 1;
  };
  const int rank = open.group->rank(), last = static_cast<int>(open.members.size()) - 1;
  if (rank < last) return calls.value() * weight(rank);
  std::uint64_t others = 0;
  for (int r = 0; r < last; ++r) others += weight(r);
  return calls.value() * (0 - others);
}

std::string Liveness::reached(const Open& open) {
  std::vector<std::string> fields = {open.key};
  // What it has ended by then may be what another rank waits in, which called something else.
  const bool trusted = !open.group->failed() || open.group->failure_code() != ErrorCode::Mismatch;
  const auto unfinished =
      static_cast<std::uint64_t>(open.unfinished);  // also those that only a caller carries
  for (int c = 0; c < kChannelCount; ++c) {
    const auto channel = static_cast<Channel>(c);
    const std::uint64_t next = open.group->sequence(channel);
    fields.push_back(std::to_string(!trusted
                                        ? 0
                                        : std::min(next - std::min(next, unfinished),
                                                   open.engine->first_unfinished(*open.group, channel))));
  }
  return pack(fields);
}

void Liveness::end(const std::string& why) {
  ending_.store(true, std::memory_order_release);
  if (!heartbeat()) return;
  News news;
  news.text = own_name() + " has left the job: " + why;
  for (const Open& open : open_groups()) news.details += reached(open);
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
  if (watch) watch->say(std::move(news), patience);
  const std::lock_guard lock(mutex_);
  if (!meets_again && notified_ == Clock::time_point{}) notified_ = Clock::now();
}

void Liveness::linger() const {
  Clock::time_point told;
  {
    const std::lock_guard lock(mutex_);
    if (!heartbeat_ || notified_ == Clock::time_point{}) return;
    told = notified_;
  }
  // A look of theirs, a round with the store between hosts, and the writing.
  bool one_host = true;
  for (int r = 0; r < network_.membership()->size(); ++r) one_host &= on_this_host(r);
  std::this_thread::sleep_until(told + (one_host ? milliseconds(600) : milliseconds(1500)));
}

void Liveness::give_up(milliseconds patience) {
  const auto watch = heartbeat();
  if (!watch) return;
  watch->say({News::Kind::Ended, {}, own_name() + " has ended without MPI_Finalize"}, patience);
  const std::lock_guard lock(mutex_);
  notified_ = Clock::now();
}

void Liveness::stop(milliseconds patience) {
  if (const auto watch = heartbeat()) watch->stop(patience);
}

}  // namespace mpi_gdr
