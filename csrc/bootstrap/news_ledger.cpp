#include "bootstrap/news_ledger.hpp"

#include <algorithm>

namespace mpi_gdr {

bool is_about_life(News::Kind kind) {
  return kind == News::Kind::Ended || kind == News::Kind::Silent || kind == News::Kind::Left;
}

NewsLedger::Key NewsLedger::key_of(const News& news) {
  return {news.kind, news.ranks, is_about_life(news.kind) ? "" : news.details};
}

bool NewsLedger::keep_new(News& news) {
  if (!is_about_life(news.kind)) {
    if (!seen_.insert(key_of(news)).second) return false;
    for (const int r : news.ranks) {
      if (news.kind == News::Kind::Quiet) quiet_.insert_or_assign(r, news);
      if (news.kind == News::Kind::Back) quiet_.erase(r);
    }
    return true;
  }
  std::erase_if(news.ranks, [&](int r) {
    const auto found = known_.find(r);
    // The goodbye of a rank may arrive after the end of its process.
    return found != known_.end() && (found->second.kind != News::Kind::Left || news.kind == News::Kind::Left);
  });
  if (news.ranks.empty()) return false;
  // The end of its process does not hide why a rank left.
  if (const auto found = known_.find(news.ranks.front()); news.ranks.size() == 1 &&
                                                          news.kind == News::Kind::Ended &&
                                                          found != known_.end() && !found->second.meets_again)
    news.text = found->second.text + "; its process has ended";
  return true;
}

std::optional<News> NewsLedger::add(const News& news, bool published, bool publish) {
  if (published) mark_published({news});
  News fresh = news;
  const std::lock_guard lock(mutex_);
  if (!keep_new(fresh)) return std::nullopt;
  if (publish) unpublished_.push_back(fresh);
  if (!is_about_life(fresh.kind)) return fresh;
  std::vector<int> reported;
  for (const int r : fresh.ranks) {
    // A process that said goodbye and waited for the others may end: only the last meeting has to know.
    const auto found = known_.find(r);
    if (found == known_.end() || !found->second.meets_again) reported.push_back(r);
    if (known_.insert_or_assign(r, fresh).second) order_.push_back(r);
    quiet_.erase(r);
  }
  fresh.ranks = std::move(reported);
  return fresh;
}

std::vector<News> NewsLedger::unpublished() const {
  const std::lock_guard lock(mutex_);
  return unpublished_;
}

void NewsLedger::mark_published(const std::vector<News>& all) {
  const std::lock_guard lock(mutex_);
  for (const News& news : all)
    std::erase_if(unpublished_, [key = key_of(news)](const News& other) { return key_of(other) == key; });
}

std::vector<int> NewsLedger::remaining(std::vector<int> ranks) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranks, [&](int r) { return known_.contains(r); });
  return ranks;
}

std::vector<int> NewsLedger::quiet_by(const std::string& domain, std::vector<int> ranks) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranks, [&](int r) {
    const auto quiet = quiet_.find(r);
    return quiet == quiet_.end() || !quiet->second.details.starts_with(domain);
  });
  return ranks;
}

std::vector<int> NewsLedger::not_quiet(std::vector<int> ranks) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranks, [&](int r) { return quiet_.contains(r); });
  return ranks;
}

std::optional<News> NewsLedger::quiet_news(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = quiet_.find(rank);
  return found == quiet_.end() ? std::nullopt : std::optional(found->second);
}

bool NewsLedger::has_ended(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(rank);
  return found != known_.end() && found->second.kind == News::Kind::Ended;
}

std::string NewsLedger::missing(int own_rank) const {
  const std::lock_guard lock(mutex_);
  for (const int r : order_) {
    const News& news = known_.at(r);
    if (r != own_rank && !(news.kind == News::Kind::Left && news.meets_again)) return news.text;
  }
  return "";
}

std::string NewsLedger::lost_among(const std::vector<int>& ranks, bool or_left) const {
  const std::lock_guard lock(mutex_);
  for (const int r : order_)
    if (const News& news = known_.at(r);
        (or_left || news.kind != News::Kind::Left) && std::find(ranks.begin(), ranks.end(), r) != ranks.end())
      return news.text;
  return "";
}

}  // namespace mpi_gdr
