// What a rank knows of the others' lives, and what of that its domain has yet to publish. The first news
// about a rank counts.
//
// Threads: every call takes the lock, and none calls out with it held.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "bootstrap/news.hpp"

namespace mpi_gdr {

// Ended, Silent or Left: the rank takes part no more.
bool is_about_life(News::Kind kind);

class NewsLedger {
 public:
  // Returns what is new and worth a report, perhaps about no rank; nothing if all of it was known.
  // `published`: it comes from the store. `publish`: it shall go there.
  std::optional<News> add(const News& news, bool published, bool publish);

  std::vector<News> unpublished() const;
  void mark_published(const std::vector<News>& all);

  // Those of these ranks that have neither ended nor left nor been given up.
  std::vector<int> remaining(std::vector<int> ranks) const;
  // Those of these that were reported quiet, by the domain whose details begin like this.
  std::vector<int> quiet_by(const std::string& domain, std::vector<int> ranks) const;
  std::vector<int> not_quiet(std::vector<int> ranks) const;
  std::optional<News> quiet_news(int rank) const;
  bool has_ended(int rank) const;

  // As the functions of these names of PeerWatch.
  std::string missing(int own_rank) const;
  std::string lost_among(const std::vector<int>& ranks, bool or_left) const;

 private:
  // Equal for equal news.
  using Key = std::tuple<News::Kind, std::vector<int>, std::string>;
  static Key key_of(const News& news);
  bool keep_new(News& news);  // what is new of it

  mutable std::mutex mutex_;
  std::map<int, News> known_;      // of ranks that are lost, or left
  std::vector<int> order_;         // of known_, the first first: later ones may be its consequence
  std::map<int, News> quiet_;      // of ranks that may come back
  std::set<Key> seen_;             // news that is not about a rank's life
  std::vector<News> unpublished_;  // in the order in which it was learnt
};

}  // namespace mpi_gdr
