#include "job/slow_calls.hpp"

#include <algorithm>
#include <new>

#include "common/record.hpp"

namespace mpi_gdr {
namespace {

constexpr std::size_t kMost = 64;  // entries of each kind
constexpr int kMostAnnouncements = 512;

template <typename T>
void keep(std::deque<T>& all, T one) {
  all.push_back(std::move(one));
  if (all.size() > kMost) all.pop_front();
}

}  // namespace

std::string SlowCalls::pack_call(const Call& c) {
  return pack({c.key,
               std::to_string(c.rank),
               std::to_string(static_cast<int>(c.channel)),
               std::to_string(c.call.history),
               std::to_string(c.call.sequence),
               std::to_string(c.call.count),
               std::to_string(c.call.root),
               std::to_string(static_cast<int>(c.call.collective)),
               std::to_string(static_cast<int>(c.call.op)),
               c.call.uneven ? "1" : "0",
               {c.call.dtype.begin(), c.call.dtype.end()}});
}

SlowCalls::Call SlowCalls::unpack_call(const std::string& details) {
  RecordReader record("a slow collective of another rank", details);
  Call c;
  c.key = record.text("group");
  c.rank = record.number<int>("rank", 0);
  c.channel = static_cast<Channel>(record.number<int>("channel", 0, static_cast<int>(Channel::Accelerator)));
  c.call.history = record.number<std::uint64_t>("history");
  c.call.sequence = record.number<std::uint64_t>("sequence");
  c.call.count = record.number<std::uint64_t>("count");
  c.call.root = record.number<std::int32_t>("root");
  c.call.collective = static_cast<Collective>(record.number<int>("collective", 0, kCollectiveCount - 1));
  c.call.op = static_cast<ReduceOp>(record.number<int>("operation", 0, kReduceOpCount - 1));
  c.call.uneven = record.flag("uneven");
  record.text("dtype").copy(c.call.dtype.data(), c.call.dtype.size());
  record.end();
  return c;
}

void SlowCalls::note(const Operation& operation) noexcept try {
  const std::lock_guard lock(mutex_);
  keep(noted_, {&operation.group(), operation.info().channel, operation.info().call});
} catch (const std::bad_alloc&) {
  // The call ends at its deadline without a comparison.
}

void SlowCalls::receive(const News& news) {
  Call call = unpack_call(news.details);
  const std::lock_guard lock(mutex_);
  ++announcements_;
  keep(announced_, call);
  keep(received_, std::move(call));
}

bool SlowCalls::idle() {
  const std::lock_guard lock(mutex_);
  return noted_.empty() && received_.empty();
}

std::vector<News> SlowCalls::announcements(const std::vector<Group>& groups) {
  std::vector<News> all;
  const std::lock_guard lock(mutex_);
  for (const Noted& slow : noted_) {
    const auto group =
        std::ranges::find_if(groups, [&](const Group& g) { return g.state.get() == slow.group; });
    if (group == groups.end() || announcements_ >= kMostAnnouncements) continue;
    Call call{group->key, group->state->rank(), slow.channel, slow.call};
    if (std::ranges::any_of(announced_, [&](const Call& other) {
          return other.key == call.key && other.channel == call.channel &&
                 other.call.history == call.call.history;
        }))
      continue;
    News& news = all.emplace_back(News{News::Kind::Slow, {}, ""});
    news.text = "rank " + std::to_string(call.rank) + " of group " + group->state->name() + " waits in " +
                text_of(call.call);
    news.details = pack_call(call);
    ++announcements_;
    keep(announced_, std::move(call));
  }
  noted_.clear();
  return all;
}

void SlowCalls::look(const std::vector<Group>& groups, const std::function<void(News)>& announce,
                     const std::function<void(GroupState&, const std::string&)>& differs) {
  for (News& news : announcements(groups)) announce(std::move(news));
  std::deque<Call> received;
  {
    const std::lock_guard lock(mutex_);
    received.swap(received_);
  }
  for (const Call& call : received) {
    const auto group = std::ranges::find_if(groups, [&](const Group& g) { return g.key == call.key; });
    if (group == groups.end() || group->state->failed()) continue;
    const auto ours = group->state->called(call.channel, call.call.sequence);
    if (!ours) {
      const std::lock_guard lock(mutex_);
      keep(received_, call);
    } else if (ours->sequence == call.call.sequence && ours->history != call.call.history) {
      differs(*group->state, difference(call.rank, call.call, *ours));
    }
  }
}

}  // namespace mpi_gdr
