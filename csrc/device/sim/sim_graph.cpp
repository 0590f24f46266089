#include "device/sim/sim_graph.hpp"

#include <algorithm>
#include <utility>

#include "common/error.hpp"

namespace mpigdr {
namespace {

// `past` may know of fewer streams.
bool covers(const SimCapture::Past& whole, const SimCapture::Past& past) {
  for (std::size_t s = 0; s < past.size(); ++s)
    if (past[s] > (s < whole.size() ? whole[s] : 0)) return false;
  return true;
}

}  // namespace

void SimCapture::check_locked() const {
  if (ended_) fail(ErrorCode::InvalidUsage, "what was captured is used after the end of the capture");
}

std::size_t SimCapture::add_stream() {
  std::lock_guard lock(mutex_);
  check_locked();
  streams_.emplace_back();
  for (Past& past : streams_) past.resize(streams_.size());
  return streams_.size() - 1;
}

void SimCapture::record(std::size_t stream, Item item) {
  std::lock_guard lock(mutex_);
  check_locked();
  items_.push_back({std::move(item), stream, streams_[stream]});
  ++streams_[stream][stream];
}

SimCapture::Past SimCapture::past(std::size_t stream) {
  std::lock_guard lock(mutex_);
  check_locked();
  return streams_[stream];
}

void SimCapture::order(const Past& past, std::size_t stream) {
  std::lock_guard lock(mutex_);
  check_locked();
  Past& own = streams_[stream];
  for (std::size_t s = 0; s < past.size(); ++s) own[s] = std::max(own[s], past[s]);
}

bool SimCapture::ended() {
  std::lock_guard lock(mutex_);
  return ended_;
}

std::vector<SimCapture::Recorded> SimCapture::end() {
  std::lock_guard lock(mutex_);
  check_locked();
  ended_ = true;
  for (const Past& past : streams_)
    if (!covers(streams_[0], past))
      fail(ErrorCode::InvalidUsage, "a stream of the capture has not been joined to the one that began it");
  return std::move(items_);
}

std::vector<SimCapture::Item> SimGraph::order() {
  std::lock_guard lock(mutex_);
  std::size_t streams = 0;
  for (const auto& item : items_) streams = std::max(streams, item.stream + 1);
  std::vector<std::vector<const SimCapture::Recorded*>> waiting(streams);
  for (const auto& item : items_) waiting[item.stream].push_back(&item);
  SimCapture::Past done(streams);
  std::vector<SimCapture::Item> ordered;
  while (ordered.size() < items_.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t s = 0; s < streams; ++s)
      if (done[s] < waiting[s].size() && covers(done, waiting[s][done[s]]->past)) ready.push_back(s);
    const std::size_t next = ready.at(random_() % ready.size());
    ordered.push_back(waiting[next][done[next]++]->item);
  }
  return ordered;
}

}  // namespace mpigdr
