#include "bootstrap/peer_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bootstrap/rendezvous.hpp"
#include "common/error.hpp"
#include "common/rank_list.hpp"

namespace mpigdr {
namespace {

using std::chrono::milliseconds;

std::string seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

std::string serialise(const News& news) {
  std::vector<std::string> fields = {std::to_string(static_cast<int>(news.kind)), news.text,
                                     news.meets_again ? "1" : "0", news.details};
  for (const int rank : news.ranks) fields.push_back(std::to_string(rank));
  return pack(fields);
}

// Nothing of what the store says is trusted further than that it names ranks of this job.
// Nothing: it is no news of ours.
std::optional<News> parse(const std::string& text, int size) {
  std::vector<std::string> fields;
  try {
    fields = unpack(text);
  } catch (const Error&) {
  }
  if (fields.size() < 4) return std::nullopt;
  News news;
  news.kind = fields[0] == "0" ? News::Kind::Ended : fields[0] == "1" ? News::Kind::Silent : News::Kind::Left;
  news.text = fields[1];
  news.meets_again = fields[2] == "1";
  news.details = fields[3];
  for (std::size_t i = 4; i < fields.size(); ++i) {
    const int rank = std::atoi(fields[i].c_str());
    if (rank >= 0 && rank < size) news.ranks.push_back(rank);
  }
  return news;
}

}  // namespace

PeerWatch::PeerWatch(PeerWatchOptions options, std::function<void(const News&)> on_news)
    : options_(std::move(options)), on_news_(std::move(on_news)) {
  const auto& all = options_.processes;
  std::map<std::uint64_t, std::vector<int>> domains;
  std::vector<std::uint64_t> order;
  for (int r = 0; r < static_cast<int>(all.size()); ++r) {
    // A rank that nobody can look at stands alone.
    const std::uint64_t domain = all[r].domain ? all[r].domain : ~static_cast<std::uint64_t>(r);
    auto& ranks = domains[domain];
    if (ranks.empty()) order.push_back(domain);
    ranks.push_back(r);
  }
  for (const std::uint64_t domain : order)
    ring_.insert(ring_.end(), domains[domain].begin(), domains[domain].end());
  position_ = static_cast<int>(std::find(ring_.begin(), ring_.end(), options_.rank) - ring_.begin());
  for (const int r : ring_) {
    elsewhere_ |= far(r);
    if (r != options_.rank && !far(r)) neighbours_.push_back(r);
  }
}

bool PeerWatch::far(int rank) const {
  const ProcessId& mine = options_.processes[options_.rank];
  return rank != options_.rank && (mine.domain == 0 || options_.processes[rank].domain != mine.domain);
}

milliseconds PeerWatch::talk_pause() const {
  return std::max(milliseconds(1000), milliseconds(3 * options_.processes.size()));
}

milliseconds PeerWatch::look_pause() const {
  return std::max(milliseconds(400), milliseconds(4 * neighbours_.size()));  // a look takes some 10 us
}

void PeerWatch::tell(const News& news, bool publish) {
  const std::lock_guard telling(telling_);
  News fresh = news;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(fresh.ranks, [&](int r) {
      const auto found = known_.find(r);
      // What somebody who left had sent before may still be under way when its process ends.
      return found != known_.end() &&
             (found->second.kind != News::Kind::Left || news.kind == News::Kind::Left);
    });
    if (fresh.ranks.empty()) return;
    // That its process has ended since is no reason to forget why it left.
    if (const auto found = known_.find(fresh.ranks.front());
        fresh.ranks.size() == 1 && fresh.kind == News::Kind::Ended && found != known_.end() &&
        !found->second.meets_again)
      fresh.text = found->second.text + "; its process has ended";
    if (publish) outbox_.push_back(fresh);
    // The end of a process that had said goodbye and was waiting for the others: they know already what it
    // did not take part in. Only the last meeting has to know.
    const auto expected = [&](int r) {
      const auto found = known_.find(r);
      return found != known_.end() && found->second.meets_again;
    };
    std::vector<int> told;
    for (const int r : fresh.ranks)
      if (!expected(r)) told.push_back(r);
    for (const int r : fresh.ranks)
      if (known_.insert_or_assign(r, fresh).second) order_.push_back(r);
    fresh.ranks = std::move(told);
  }
  if (!fresh.ranks.empty()) on_news_(fresh);
}

void PeerWatch::look_around(Time now) {
  const bool resumed = looked_ != Time{} && now - looked_ > 4 * look_pause() + milliseconds(2000);
  looked_ = now;
  // This process itself did not run for a while (the whole job was stopped, or the machine is overloaded).
  if (resumed) stopped_.clear();
  for (const int r : neighbours_) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = known_.find(r);
      if (found != known_.end() && found->second.kind == News::Kind::Ended) continue;
    }
    const ProcessId& process = options_.processes[r];
    const ProcessState state = options_.probe(process);
    const std::string seen = ", seen by rank " + std::to_string(options_.rank) + " on the same host";
    if (state == ProcessState::Ended) {
      if (may_have_left(r, now)) continue;
      tell({News::Kind::Ended, {r}, describe(r, process) + " is gone: its process has ended" + seen}, true);
    } else if (state != ProcessState::Stopped) {
      stopped_.erase(r);  // in a debugger: whoever uses it wants the job to stay
    } else if (options_.silence.count() > 0) {
      const Time since = stopped_.emplace(r, now).first->second;
      if (now - since > options_.silence)
        tell({News::Kind::Silent,
              {r},
              describe(r, process) + " has not been heard of for " + seconds(now - since) +
                  ": its process is stopped (by SIGSTOP or job control)" + seen},
             true);
    }
  }
}

// Before it ended it may have said goodbye. That stands in the store then, and the next round that begins
// reads it, if the store answers.
bool PeerWatch::may_have_left(int rank, Time now) {
  const std::lock_guard lock(mutex_);
  const auto [seen, first] = ended_.try_emplace(rank, Sighting{now, rounds_begun_ + 1});
  const bool unsure =
      !known_.contains(rank) && rounds_ended_ < seen->second.round && now - seen->second.when < kHearOut;
  if (!unsure) ended_.erase(seen);
  return unsure;
}

bool PeerWatch::unsure() const {
  const std::lock_guard lock(mutex_);
  return !ended_.empty();
}

int PeerWatch::next_left(int position, int step) const {
  const int size = static_cast<int>(ring_.size());
  const std::lock_guard lock(mutex_);
  for (int i = 1; i < size; ++i) {
    const int r = ring_[((position + i * step) % size + size) % size];
    if (!known_.contains(r)) return r;
  }
  return -1;
}

void PeerWatch::beat(KvStore& store, Time now) {
  const auto key = [&](int r) { return options_.prefix + "/beat/" + std::to_string(r); };
  const bool first = talked_ == Time{};  // says that this rank has begun, whether watched or not
  if (const int before = next_left(position_, -1); first || (before >= 0 && far(before)))
    store.add(key(options_.rank), 1);
  const int next = next_left(position_, 1);
  if (next < 0 || !far(next)) return;
  const std::int64_t count = store.add(key(next), 0);
  // A new one to watch has to learn first that it is watched. After a pause of our own nothing is known.
  // Ranks may begin far apart in time: who has not begun is not silent.
  const bool resumed = talked_ != Time{} && now - talked_ > 4 * talk_pause() + milliseconds(2000);
  if (next != watched_ || count != last_beat_ || count == 0 || resumed) heard_ = now;
  watched_ = next;
  last_beat_ = count;
  const auto silence = std::max(options_.silence, 4 * talk_pause());
  if (options_.silence.count() == 0 || now - heard_ <= silence) return;
  News news{News::Kind::Silent, {}, ""};
  {
    const std::lock_guard lock(mutex_);
    for (const int r : ring_)
      if (options_.processes[r].domain == options_.processes[next].domain && !known_.contains(r) &&
          (r == next || options_.processes[r].domain != 0))
        news.ranks.push_back(r);
  }
  news.text = (news.ranks.size() == 1 ? describe(next, options_.processes[next]) + " has"
                                      : "ranks " + rank_list(news.ranks) + " (host " +
                                            options_.processes[next].host + ") have") +
              " not been heard of for " + seconds(now - heard_) +
              ": the host or the network to it is down, or all of it is stopped; seen by " +
              describe(options_.rank, options_.processes[options_.rank]);
  tell(news, true);
}

void PeerWatch::publish(KvStore& store, const News& news) {
  // All ranks of a host see the same: one of them tells.
  const char* kind = news.kind == News::Kind::Left ? "/left/" : "/gone/";
  if (store.add(options_.prefix + kind + std::to_string(news.ranks.front()), 1) != 1) return;
  // Half of the list is kept for losses.
  if (news.kind == News::Kind::Left && store.add(options_.prefix + "/news", 0) >= kMaxNews / 2) return;
  const std::int64_t item = store.add(options_.prefix + "/news", 1);
  if (item <= kMaxNews) store.set(options_.prefix + "/news/" + std::to_string(item), serialise(news));
}

void PeerWatch::read(KvStore& store) {
  while (read_ < kMaxNews) {
    const auto key = [&](int item) { return options_.prefix + "/news/" + std::to_string(item); };
    const auto item = store.try_get(key(read_ + 1));
    if (!item) {
      // Whoever had taken this number may have died before it wrote.
      if (++misses_ % 8 == 0 && store.check(key(read_ + 2))) ++read_;
      return;
    }
    ++read_;
    if (const auto news = parse(*item, static_cast<int>(options_.processes.size()))) tell(*news, false);
  }
}

void PeerWatch::talk(KvStore& store, Time now) {
  std::uint64_t round;
  {
    const std::lock_guard lock(mutex_);
    round = ++rounds_begun_;
  }
  if (elsewhere_) beat(store, now);
  std::vector<News> out;
  {
    const std::lock_guard lock(mutex_);
    out.swap(outbox_);
  }
  for (const News& news : out) publish(store, news);
  read(store);
  talked_ = now;
  {
    const std::lock_guard lock(mutex_);
    rounds_ended_ = round;
  }
  if (options_.abort_key.empty()) return;
  if (auto reason = store.try_get(options_.abort_key)) {
    const std::lock_guard lock(mutex_);
    abort_reason_ = std::move(reason);
  }
}

void PeerWatch::leave(News news) {
  const std::lock_guard lock(mutex_);
  news.ranks = {options_.rank};
  outbox_.push_back(std::move(news));
}

std::optional<std::string> PeerWatch::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

std::string PeerWatch::missing() const {
  const std::lock_guard lock(mutex_);
  for (const int r : order_) {
    const News& news = known_.at(r);
    if (r != options_.rank && !(news.kind == News::Kind::Left && news.meets_again)) return news.text;
  }
  return "";
}

std::string PeerWatch::lost_among(const std::vector<int>& ranks, bool or_left) const {
  const std::lock_guard lock(mutex_);
  for (const int r : order_)
    if (const News& news = known_.at(r);
        (or_left || news.kind != News::Kind::Left) && std::find(ranks.begin(), ranks.end(), r) != ranks.end())
      return news.text;
  return "";
}

}  // namespace mpigdr
