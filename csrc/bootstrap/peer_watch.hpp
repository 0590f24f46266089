// Who of the job is still there: the rules, without threads. Heartbeat (heartbeat.hpp) drives them.
//
// Ranks of one domain (a host, see ProcessId) look at each other's processes in /proc: definite and quick. A
// process that has ended is told at once, one that is stopped after `silence`. Between domains there are
// beats: the ranks stand in a ring, ordered by domain, and each watches the next one that is left. Only where
// that is in another domain a beat is needed, a counter in the store; so each host sends one and reads one,
// however many ranks it has. A beat that stays away for `silence` tells of the whole domain, since the loss
// of a single process had been told from inside.
//
// Whoever finds something publishes it as the next item of one list in the store, which all ranks read. The
// first item about a rank counts. The list is short (kMaxNews): a job that has lost so many ranks is lost,
// and a store server must not be drowned by its end.
//
// A rank that leaves says so itself (News::Kind::Left), with what the others need to know of it. Whoever
// finds its process ended hears that first.
//
// Threads: look_around() and talk() may run at the same time, each on one thread; everything else from any
// thread. The callback comes from either of the two, one at a time, with no lock of PeerWatch's but that one
// held.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/kv_store.hpp"
#include "bootstrap/process_id.hpp"

namespace mpigdr {

struct News {
  enum class Kind {
    Ended,   // the process is gone
    Silent,  // stopped, or not heard of: it may come back, but the job goes on without it
    Left     // it said goodbye
  };
  Kind kind = Kind::Left;
  std::vector<int> ranks;
  std::string text;          // a sentence that names ranks, hosts, pids and how it was found
  bool meets_again = false;  // Left: it waits for the others before it ends MPI
  std::string details;       // Left: for whoever knows what groups are; opaque here
};

struct PeerWatchOptions {
  int rank = 0;
  std::vector<ProcessId> processes;  // by rank
  std::string prefix;                // of all keys: unique per job and attempt, and per store
  std::string abort_key;  // "" or a key whose appearance ends the job, with its value as the reason
  std::chrono::milliseconds silence{0};  // 0: silence and stopped processes are no news
  std::function<ProcessState(const ProcessId&)> probe = look_at;
};

class PeerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMaxNews = 64;
  static constexpr std::chrono::milliseconds kHearOut{2000};  // for a goodbye, if the store does not answer

  PeerWatch(PeerWatchOptions options, std::function<void(const News&)> on_news);

  // One look at the processes of this domain.
  void look_around(Time now);
  // The last look found a process that has ended, and may have said goodbye before: the next one tells, once
  // a round with the store has come between.
  bool unsure() const;
  // One round with the store: publishes, beats, watches the next domain, reads the list. About two requests.
  // Throws what the store throws.
  void talk(KvStore& store, Time now);
  // Publishes at the next talk() that this rank leaves (Kind::Left), or that it goes without having met the
  // others as it had said (Kind::Ended). Each once.
  void leave(News news);
  // What stands at the abort key, once talk() has seen it.
  std::optional<std::string> abort_reason() const;

  // A rank that will not come to a last meeting: the sentence about it, or "".
  std::string missing() const;
  // What was heard first of any of these ranks, but for those that merely left (unless `or_left`); or "".
  std::string lost_among(const std::vector<int>& ranks, bool or_left = false) const;
  bool has_peers_here() const { return !neighbours_.empty(); }
  bool has_peers_elsewhere() const { return elsewhere_; }

  // Pauses that keep all ranks together below 1000 requests a second, and a rank's own looks below 1 % of a
  // core.
  std::chrono::milliseconds talk_pause() const;
  std::chrono::milliseconds look_pause() const;

 private:
  struct Sighting {
    Time when;
    std::uint64_t round;  // the first with the store that begins later
  };
  bool may_have_left(int rank, Time now);
  void tell(const News& news, bool publish);
  void beat(KvStore& store, Time now);
  void publish(KvStore& store, const News& news);
  void read(KvStore& store);
  int next_left(int position, int step) const;  // in the ring, from a position on; the rank
  bool far(int rank) const;

  const PeerWatchOptions options_;
  const std::function<void(const News&)> on_news_;
  std::vector<int> ring_;        // ranks, by domain
  int position_ = 0;             // of this rank in the ring
  std::vector<int> neighbours_;  // other ranks of this domain
  bool elsewhere_ = false;       // some rank is in another domain

  std::mutex telling_;        // held during the callback: one at a time
  mutable std::mutex mutex_;  // all below, down to the line
  std::map<int, News> known_;
  std::vector<int> order_;  // ranks of known_, the first loss first: later ones may be its consequence
  std::vector<News> outbox_;
  std::optional<std::string> abort_reason_;
  std::map<int, Sighting> ended_;  // of whom it is not told yet
  std::uint64_t rounds_begun_ = 0, rounds_ended_ = 0;
  // --- of look_around()
  Time looked_{};
  std::map<int, Time> stopped_;  // since when
  // --- of talk()
  int read_ = 0;         // items of the list
  unsigned misses_ = 0;  // looks at the next one that was not there
  Time talked_{};
  int watched_ = -1;
  std::int64_t last_beat_ = -1;
  Time heard_{};
};

}  // namespace mpigdr
