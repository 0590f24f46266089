#include "checker/race_detector.hpp"

#include <algorithm>
#include <iterator>

#include "checker/expression.hpp"

namespace mpi_gdr {
namespace {

std::uint32_t over(std::uint32_t round) { return round + 2; }  // the clock's value after the round

std::string where(const RaceDetector::Access& a) {
  return "round " + std::to_string(a.round) + ", step " + std::to_string(a.step) + " of rank " +
         std::to_string(a.rank) + (a.write ? " writes" : " reads");
}

std::string place(const RaceDetector::Access& a) {
  return text({a.extent.region, a.extent.begin, a.extent.end - a.extent.begin, a.owner});
}

}  // namespace

void merge(VectorClock& into, const VectorClock& from) {
  into.resize(std::max(into.size(), from.size()));
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void RaceDetector::access(const Access& access, const VectorClock& clock, std::size_t lane_of_owner) {
  if (access.owner != access.rank && clock[lane_of_owner] == 0)
    reject(where(access), " ", place(access), ", which may not have begun");
  const Extent& extent = access.extent;
  Memory& memory = memories_[{access.owner, extent.region}];
  const auto check_against = [&](auto& history) {
    auto& all = history.accesses;
    const std::uint64_t first = extent.begin - std::min(extent.begin, history.longest);
    for (auto at = all.lower_bound(first); at != all.end() && at->first < extent.end;) {
      const Access& other = at->second;
      const bool overlaps = other.extent.overlaps(extent);
      const bool same_step =
          other.lane == access.lane && other.round == access.round && other.step == access.step;
      const bool ordered = other.lane == access.lane ? other.round != access.round || same_step
                                                     : clock[other.lane] >= over(other.round);
      if (overlaps && !ordered)
        reject(where(access), " ", place(access), " while ", where(other), " ", place(other));
      // Whatever is ordered after this write is ordered after accesses that it covers, so those are dropped.
      const bool covered = access.write && !same_step && overlaps && extent.begin <= other.extent.begin &&
                           other.extent.end <= extent.end;
      at = covered ? all.erase(at) : std::next(at);
    }
  };
  check_against(memory.writes);
  if (access.write) check_against(memory.reads);
  History& history = access.write ? memory.writes : memory.reads;
  history.accesses.emplace(extent.begin, access);
  history.longest = std::max(history.longest, extent.end - extent.begin);
}

void RaceDetector::end(int owner, const VectorClock& clock) const {
  for (const Buffer region : {Buffer::Input, Buffer::Output}) {
    const auto found = memories_.find({owner, region});
    if (found == memories_.end()) continue;
    for (const History* history : {&found->second.reads, &found->second.writes})
      for (const auto& [begin, access] : history->accesses)
        if (access.rank != owner && clock[access.lane] < over(access.round))
          reject(where(access), " ", place(access), ", which may have ended");
  }
}

}  // namespace mpi_gdr
