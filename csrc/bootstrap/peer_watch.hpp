// Who of the job is still there: the rules, without threads. Heartbeat (heartbeat.hpp) drives them.
//
// Ranks of one domain (a host, see ProcessId) look at each other's processes in /proc and read each other's
// boards: that is definite and quick. A process that has ended is reported at once. One
// that is stopped, or a domain that is not heard of, may come back: it is reported after kReport and given up
// after `silence`.
//
// The end of a process is reported at once between domains, too: the next speaker is at the other end of a
// lifeline.
//
// The lowest rank of a domain that runs speaks for it with the store, and so with other domains: it beats (a
// counter), watches the beat of the next domain of a ring, publishes what its domain knows and posts on its
// own board what others have published. If it ends, or is stopped, the next one takes its place: every rank
// of a domain knows what the domain has to say, and what stands in the store is not said twice. So a job has
// one connection for each host, and none if it has one host.
//
// What is published is one list that all speakers read, in items of one or several news. The first news about
// a rank counts. The list is bounded (kMaxItems).
//
// Threads: look_around() and talk() may run at the same time, each on one thread; everything else from any
// thread. The callback comes from any of them, one at a time, with no lock of PeerWatch's but that one held.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/board.hpp"
#include "bootstrap/kv_store.hpp"
#include "bootstrap/lifeline.hpp"
#include "bootstrap/news_ledger.hpp"
#include "bootstrap/process_id.hpp"

namespace mpi_gdr {

struct PeerWatchOptions {
  int rank = 0;
  std::vector<ProcessId> processes;      // by rank
  std::shared_ptr<Boards> boards;        // null: the ranks of a domain hear each other's ends only
  std::string prefix;                    // of all keys: unique per job and attempt, and per store
  std::chrono::milliseconds silence{0};  // 0: a rank that may come back is never given up
  std::function<ProcessState(const ProcessId&)> probe = look_at;
};

class PeerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kReport{10'000};
  static constexpr int kMaxItems = 4096;
  // A rank that has announced an item of the list and has not written it by then has died.
  static constexpr std::chrono::milliseconds kHole{3000};

  // `found_here`: this rank is the first to know, so that it alone says so to the user.
  using OnNews = std::function<void(const News&, bool found_here)>;
  PeerWatch(PeerWatchOptions options, OnNews on_news);

  // One look at the processes and boards of this domain.
  void look_around(Time now);
  // Since the last look this rank speaks for its domain, and there is another one: talk() is to be called.
  bool speaks() const { return speaks_.load(std::memory_order_acquire); }
  // One round with the store: beats, watches the next domain, reads the list, publishes. About four requests.
  // Throws what the store throws, and may then be called again with another connection.
  void talk(KvStore& store, Time now);
  // About this rank itself. The ranks of its domain can read it when this returns, those of others once a
  // speaker has published it. Each news once.
  void say(News news);
  // Nothing will be heard of other domains any more: gives up all their ranks with this sentence.
  void lose_others(const std::string& text);
  // All that is known to this domain stands in the store, or there is no other domain.
  bool published() const { return ledger_.unpublished().empty(); }

  // A rank that will not come to a last meeting: the sentence about it, or "".
  std::string missing() const { return ledger_.missing(options_.rank); }
  // What was heard first of any of these ranks, but for those that merely left (unless `or_left`); or "".
  std::string lost_among(const std::vector<int>& ranks, bool or_left = false) const {
    return ledger_.lost_among(ranks, or_left);
  }
  // What is known of any of these that may come back, or "".
  std::string quiet_among(const std::vector<int>& ranks) const;
  bool has_peers_elsewhere() const { return domains_.size() > 1; }

  // Pauses that keep all speakers together below 1000 requests a second, and a rank's own looks below 1 % of
  // a core.
  std::chrono::milliseconds talk_pause() const;
  std::chrono::milliseconds look_pause() const;

 private:
  enum class Source : std::uint8_t {
    Found,   // by this rank
    Heard,   // from a rank of this domain
    Relayed  // stands in the store
  };

  void learn(const News& news, Source source);
  void post(const News& news, bool relayed);
  void read_board(int rank);
  void look_at_peer(int rank, Time now);
  void report_stopped(int rank, const std::string& who, std::chrono::steady_clock::duration since);
  void report_back(const std::vector<int>& candidates, const std::string& text);
  bool is_lowest(Time now) const;
  void beat(KvStore& store, Time now);
  void publish(KvStore& store);
  void hold_lifeline(KvStore& store, std::size_t domain, Time now);
  void read(KvStore& store, Time now);
  std::string whom(const std::vector<int>& ranks) const;
  std::string given_up() const;  // when, for a message

  const PeerWatchOptions options_;
  const OnNews on_news_;
  std::vector<std::vector<int>> domains_;  // ranks, ascending; domains by their lowest rank
  std::size_t domain_ = 0;                 // of this rank
  std::atomic<bool> speaks_{false};

  std::mutex reporting_;  // held during the callback: one at a time
  NewsLedger ledger_;
  // --- of look_around()
  Time looked_{};
  bool lowest_ = false;  // of those of this domain that run, this is the lowest rank
  int times_quiet_ = 0;
  std::map<int, Time> stopped_;         // since when
  std::vector<std::size_t> read_from_;  // by rank: place on its board
  // --- of talk()
  int read_ = 0;                  // items of the list
  bool reported_forged_ = false;  // that there was an item that is not ours
  Time hole_{};                   // since when the next item is missing that has been announced
  Time talked_{};
  std::size_t watched_ = 0;
  std::int64_t last_beat_ = -1;
  Time heard_{};
  bool offers_lifeline_ = false;                // this process's
  std::unique_ptr<LifelineWatch> to_lifeline_;  // of the speaker of the next domain; null: not known
  int at_lifeline_ = -1;                        // which rank that is
  Time speaker_ended_{};                        // that rank has, and no speaker has spoken since
};

}  // namespace mpi_gdr
