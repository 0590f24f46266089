#include "bootstrap/peer_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/signed_store.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/rank_list.hpp"
#include "common/record.hpp"

namespace mpi_gdr {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A speaker that is stopped is stood in for after so long, before anybody takes its domain for silent.
constexpr milliseconds kStandIn(2000);

std::string seconds(steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

// Longer than any pause: this process itself did not run (the whole job was stopped, or the machine is
// overloaded), and knows nothing of that time.
bool slept(PeerWatch::Time before, PeerWatch::Time now, milliseconds pause) {
  return before != PeerWatch::Time{} && now - before > 4 * pause + milliseconds(2000);
}

}  // namespace

PeerWatch::PeerWatch(PeerWatchOptions options, OnNews on_news)
    : options_(std::move(options)), on_news_(std::move(on_news)), read_from_(options_.processes.size(), 0) {
  const auto& all = options_.processes;
  std::map<std::uint64_t, std::size_t> places;
  for (int r = 0; r < static_cast<int>(all.size()); ++r) {
    // A rank that no other can look at stands alone.
    const std::uint64_t domain = all[r].domain ? all[r].domain : ~static_cast<std::uint64_t>(r);
    const auto [place, first] = places.emplace(domain, domains_.size());
    if (first) domains_.emplace_back();
    domains_[place->second].push_back(r);
    if (r == options_.rank) domain_ = place->second;
  }
}

milliseconds PeerWatch::talk_pause() const {
  return std::max(milliseconds(500), milliseconds(4 * domains_.size()));
}

milliseconds PeerWatch::look_pause() const {
  // A look at one takes some 10 us.
  const std::size_t here = domains_.empty() ? 0 : domains_[domain_].size();
  return std::max(milliseconds(250), milliseconds(4 * here));
}

void PeerWatch::learn(const News& news, Source source) {
  const std::lock_guard reporting(reporting_);
  const bool relayed = source == Source::Relayed;
  const std::optional<News> fresh = ledger_.add(news, relayed, !relayed && has_peers_elsewhere());
  if (!fresh) return;
  // Every rank of this domain sees the end of a process by itself, and reads its last words first.
  const auto& here = domains_[domain_];
  const bool seen_by_all = news.kind == News::Kind::Ended && news.ranks.front() != options_.rank &&
                           std::find(here.begin(), here.end(), news.ranks.front()) != here.end();
  if (relayed || (source == Source::Found && !seen_by_all)) post(news, relayed);
  if (!fresh->ranks.empty()) on_news_(*fresh, source == Source::Found);
}

void PeerWatch::say(News news) {
  news.ranks = {options_.rank};
  learn(news, Source::Found);
}

void PeerWatch::post(const News& news, bool relayed) {
  if (!options_.boards || !options_.boards->own) return;
  const auto posted = [&](const News& what) {
    return options_.boards->own->post(pack({options_.prefix, relayed ? "relayed" : "own", serialise(what)}));
  };
  News short_news = news;
  short_news.details.clear();  // of very many groups
  if (!posted(news) && (!is_about_life(news.kind) || !posted(short_news)))
    log(LogLevel::Warn, "ALIVE", "the ranks of this host were not notified, the board is full: ", news.text);
}

void PeerWatch::read_board(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (!options_.boards || at >= options_.boards->peers.size() || !options_.boards->peers[at]) return;
  for (const std::string& text : options_.boards->peers[at]->read(read_from_[at])) {
    std::vector<std::string> fields;
    try {
      fields = unpack(text);
    } catch (const Error&) {
      continue;
    }
    if (fields.size() != 3 || fields[0] != options_.prefix) continue;  // of another generation
    if (const auto news = parse_news(fields[2], static_cast<int>(options_.processes.size())))
      learn(*news, fields[1] == "relayed" ? Source::Relayed : Source::Heard);
  }
}

bool PeerWatch::is_lowest(Time now) const {
  for (const int r : ledger_.remaining(domains_[domain_])) {
    if (r >= options_.rank) break;
    const auto stopped = stopped_.find(r);
    if (stopped == stopped_.end() || now - stopped->second <= kStandIn) return false;
  }
  return true;
}

std::string PeerWatch::whom(const std::vector<int>& ranks) const {
  const ProcessId& first = options_.processes[ranks.front()];
  return ranks.size() == 1 ? describe(ranks.front(), first) + " has"
                           : "ranks " + rank_list(ranks) + " (host " + first.host + ") have";
}

std::string PeerWatch::given_up() const {
  const bool never = options_.silence.count() == 0;
  return never ? "; silent ranks never count as lost (MPI_GDR_HEARTBEAT=0)"
               : "; silent ranks count as lost after " + seconds(options_.silence) + " (MPI_GDR_HEARTBEAT)";
}

void PeerWatch::look_around(Time now) {
  if (slept(looked_, now, look_pause())) stopped_.clear();
  looked_ = now;
  for (const int r : domains_[domain_])
    if (r != options_.rank) look_at_peer(r, now);
  lowest_ = is_lowest(now);
  speaks_.store(lowest_ && has_peers_elsewhere(), std::memory_order_release);
}

void PeerWatch::look_at_peer(int rank, Time now) {
  if (ledger_.has_ended(rank)) return;
  const ProcessId& process = options_.processes[rank];
  const ProcessState state = options_.probe(process);
  read_board(rank);  // after the probe: of a process that has ended these are its last words
  if (state == ProcessState::Ended) {
    learn({News::Kind::Ended,
           {rank},
           describe(rank, process) + " is gone: its process has ended, seen by rank " +
               std::to_string(options_.rank) + " on the same host"},
          Source::Found);
  } else if (state != ProcessState::Stopped) {
    // In a debugger: its user wants the job to stay.
    stopped_.erase(rank);
    if (lowest_) report_back({rank}, " runs again");
  } else {
    const Time since = stopped_.emplace(rank, now).first->second;
    if (lowest_) report_stopped(rank, describe(rank, process), now - since);
  }
}

void PeerWatch::report_stopped(int rank, const std::string& who, steady_clock::duration since) {
  const std::string text = who + " has been silent for " + seconds(since) +
                           ": its process is stopped (by SIGSTOP or job control), seen by rank " +
                           std::to_string(options_.rank) + " on the same host";
  if (options_.silence.count() > 0 && since > options_.silence) {
    learn({News::Kind::Silent, {rank}, text}, Source::Found);
  } else if (since > kReport && !ledger_.not_quiet({rank}).empty()) {
    News news{News::Kind::Quiet, {rank}, text + given_up()};
    news.details =
        std::to_string(domain_) + ":" + std::to_string(options_.rank) + "." + std::to_string(++times_quiet_);
    learn(news, Source::Found);
  }
}

void PeerWatch::report_back(const std::vector<int>& candidates, const std::string& text) {
  // The domain that has reported a rank quiet reports that it is back.
  const std::vector<int> ranks = ledger_.quiet_by(std::to_string(domain_) + ":", candidates);
  if (ranks.empty()) return;
  News news{News::Kind::Back, ranks, ""};
  const auto quiet = ledger_.quiet_news(ranks.front());
  if (!quiet) return;
  news.details = quiet->details;
  std::string who = whom(ranks);
  who.resize(who.rfind(' '));  // without "has"
  news.text = who + text;
  learn(news, Source::Found);
}

void PeerWatch::beat(KvStore& store, Time now) {
  const auto key = [&](std::size_t domain) { return options_.prefix + "/beat/" + std::to_string(domain); };
  store.add(key(domain_), 1);
  std::size_t next = domain_;
  std::vector<int> ranks;
  for (std::size_t i = 1; i < domains_.size() && ranks.empty(); ++i) {
    next = (domain_ + i) % domains_.size();
    ranks = ledger_.remaining(domains_[next]);
  }
  if (ranks.empty()) return;
  const std::int64_t count = store.add(key(next), 0);
  // Domains may begin far apart in time: one that has not begun is not silent.
  if (next != watched_) to_lifeline_.reset();
  const bool heard = next == watched_ && count != last_beat_;
  if (heard || next != watched_) speaker_ended_ = Time{};
  hold_lifeline(store, next, now);
  if (next != watched_ || heard || count == 0 || slept(talked_, now, talk_pause())) heard_ = now;
  watched_ = next;
  last_beat_ = count;
  if (heard) return report_back(ranks, ranks.size() == 1 ? " responds again" : " respond again");
  const auto since = now - heard_;
  const std::string text = " been silent for " + seconds(since) +
                           ": the host or the network to it is down, or its processes are stopped; seen by " +
                           describe(options_.rank, options_.processes[options_.rank]);
  // A host that says that its speaker has ended is not suspended: another rank would speak for it by now.
  const bool deserted =
      speaker_ended_ != Time{} && now - speaker_ended_ > std::max(kReport, 4 * talk_pause());
  if (deserted || (options_.silence.count() > 0 && since > std::max(options_.silence, 4 * talk_pause())))
    return learn({News::Kind::Silent, ranks, whom(ranks) + text}, Source::Found);
  ranks = ledger_.not_quiet(ranks);
  if (since <= std::max(kReport, 4 * talk_pause()) || ranks.empty()) return;
  News news{News::Kind::Quiet, ranks, whom(ranks) + text + given_up()};
  news.details = std::to_string(domain_) + ":" + std::to_string(options_.rank) + "-" + std::to_string(count) +
                 "." + std::to_string(next);
  learn(news, Source::Found);
}

void PeerWatch::hold_lifeline(KvStore& store, std::size_t domain, Time now) {
  const auto key = [&](std::size_t d) { return options_.prefix + "/lifeline/" + std::to_string(d); };
  if (!offers_lifeline_) {
    offers_lifeline_ = true;
    try {
      store.set(key(domain_), pack({std::to_string(options_.rank), Lifeline::of_process().address()}));
    } catch (const Error& error) {  // without it, the next host misses this rank after `silence`
      log(LogLevel::Info, "ALIVE", error.what());
    }
  }
  if (!to_lifeline_) try {
      const auto text = store.try_get(key(domain));
      if (!text) return;
      RecordReader record("a lifeline", *text);
      const int speaker = record.number<int>("rank", 0);
      const std::vector<int> left = ledger_.remaining(domains_[domain]);
      if (std::find(left.begin(), left.end(), speaker) == left.end())
        return;  // the next one has yet to write
      at_lifeline_ = speaker;
      to_lifeline_ = std::make_unique<LifelineWatch>(record.text("address"));
    } catch (const Error& error) {  // forged, or of another version
      log(LogLevel::Info, "ALIVE", error.what());
    }
  if (!to_lifeline_ || to_lifeline_->look() != LifelineWatch::State::Ended) return;
  read(store, now);  // what it had to say before
  if (hole_ != Time{}) return;
  to_lifeline_.reset();
  speaker_ended_ = now;
  if (ledger_.remaining({at_lifeline_}).empty()) return;
  learn({News::Kind::Ended,
         {at_lifeline_},
         describe(at_lifeline_, options_.processes[at_lifeline_]) +
             " is gone: its process has ended, noticed by " +
             describe(options_.rank, options_.processes[options_.rank])},
        Source::Found);
}

void PeerWatch::read(KvStore& store, Time now) {
  const std::string list = options_.prefix + "/news";
  const std::int64_t items = std::min<std::int64_t>(store.add(list, 0), kMaxItems);
  while (read_ < items) {
    std::optional<std::string> item;
    try {
      item = store.try_get(list + "/" + std::to_string(read_ + 1));
    } catch (const BadSignature& e) {  // whose place it is may still write
      if (!std::exchange(reported_forged_, true))
        log(LogLevel::Warn, "ALIVE", "ignored a notice in the store that no rank has signed: ", e.what());
    }
    if (!item) {
      if (hole_ == Time{}) hole_ = now;
      if (now - hole_ < kHole) return;
    }
    hole_ = Time{};
    ++read_;
    std::vector<std::string> all;
    try {
      if (item) all = unpack(*item);
    } catch (const Error&) {  // it is none of ours
    }
    for (const std::string& text : all)
      if (const auto news = parse_news(text, static_cast<int>(options_.processes.size())))
        learn(*news, Source::Relayed);
  }
}

void PeerWatch::publish(KvStore& store) {
  const std::vector<News> all = ledger_.unpublished();
  if (all.empty()) return;
  std::vector<std::string> texts;
  for (const News& news : all) texts.push_back(serialise(news));
  const std::string list = options_.prefix + "/news";
  const std::int64_t item = store.add(list, 1);
  if (item <= kMaxItems) store.set(list + "/" + std::to_string(item), pack(texts));
  ledger_.mark_published(all);
}

void PeerWatch::talk(KvStore& store, Time now) {
  beat(store, now);
  read(store, now);
  publish(store);
  talked_ = now;
}

void PeerWatch::lose_others(const std::string& text) {
  std::vector<int> others;
  for (std::size_t d = 0; d < domains_.size(); ++d)
    if (d != domain_)
      for (const int r : ledger_.remaining(domains_[d])) others.push_back(r);
  if (!others.empty()) learn({News::Kind::Silent, others, text}, Source::Found);
}

std::string PeerWatch::quiet_among(const std::vector<int>& ranks) const {
  for (const int r : ranks)
    if (const auto quiet = ledger_.quiet_news(r)) return quiet->text;
  return "";
}

}  // namespace mpi_gdr
