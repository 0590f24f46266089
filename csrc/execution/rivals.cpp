#include "execution/rivals.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>

#include "common/bytes_text.hpp"
#include "common/log.hpp"

namespace mpi_gdr {
namespace {

// A rival wins if it is faster by more than a 32nd.
bool is_faster(std::uint64_t a, std::uint64_t b) { return a + a / 32 < b; }

void keep_shortest(std::array<std::uint64_t, 2>& shortest, std::uint64_t time) {
  if (time >= shortest[1]) return;
  shortest[1] = time;
  if (shortest[1] < shortest[0]) std::swap(shortest[0], shortest[1]);
}

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

const char* rival_name(int rival) { return rival == 0 ? "zero_copy" : "staged"; }

std::optional<RivalTrials::Decision> RivalTrials::next() {
  if (trying_) {
    for (const Times& times : times_)
      if (times.count < kRounds) return std::nullopt;
    if (end_trial()) return Decision{current_, false};
    return std::nullopt;
  }
  if (++calls_ < distance_) return std::nullopt;
  trying_ = true;
  times_ = {};
  return Decision{current_, true};
}

void RivalTrials::add(int rival, std::uint64_t nanoseconds, bool clean) {
  if (!trying_) return;
  Times& times = times_[static_cast<std::size_t>(rival)];
  ++times.count;
  keep_shortest(times.all, nanoseconds);
  if (clean) keep_shortest(times.clean, nanoseconds);
}

// Compares the two shortest times: the first calls touch new memory, and other programs may use the cores.
bool RivalTrials::end_trial() {
  const int other = 1 - current_;
  const auto all_clean =
      std::all_of(times_.begin(), times_.end(), [](const Times& t) { return t.clean[1] != Times::kNone; });
  const auto shortest = [&](int rival) {
    const Times& times = times_[static_cast<std::size_t>(rival)];
    return all_clean ? times.clean : times.all;
  };
  const auto ours = shortest(current_), theirs = shortest(other);
  const bool changes = is_faster(theirs[0], ours[0]) && is_faster(theirs[1], ours[1]);
  const auto time = [](std::uint64_t nanoseconds) {
    return static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1));
  };
  speedup_ = time(theirs[0]) / time(ours[0]);
  clean_ = all_clean;
  if (changes) {
    current_ = other;
    speedup_ = 1 / speedup_;
  }
  distance_ = changes ? kFirstLook : std::min(kLastLook, trials_ == 0 ? kFirstLook : 2 * distance_);
  trying_ = false;
  calls_ = 0;
  ++trials_;
  return changes;
}

RivalChoices::RivalChoices(const shm::NodeMemory& node, const Traffic& traffic, std::string group,
                           const std::vector<Report>& remembered)
    : node_(node), traffic_(traffic), group_(std::move(group)) {
  for (const Report& report : remembered)
    remembered_[class_of(report.collective, report.from_bytes, report.mapped)] = report;
}

bool RivalChoices::runs_staged(int channel, const Call& call, Collective collective) {
  apply(channel, call.number);  // choose() applies the same decision again, to no effect
  const Class& c = channel_of(channel).classes[class_of(collective, call.bytes, false)];
  return c.rival == 1 && c.trial == 0;
}

RivalChoices::Choice RivalChoices::choose(int channel, const Call& call, Collective collective, int first,
                                          bool mapped, bool fixed) {
  ChannelState& state = channel_of(channel);
  ++state.next;
  apply(channel, call.number);
  if (decides()) collect(channel, call.number);
  const std::uint32_t of = fixed ? kClasses : class_of(collective, call.bytes, mapped);
  Choice choice{first};
  bool in_trial = false;
  if (!fixed) {
    Class& c = state.classes[of];
    if (c.rival < 0) c = begin(state, of, first);
    in_trial = c.trial > 0;
    const bool other = in_trial && RivalTrials::runs_other(--c.trial);
    choice.rival = other ? 1 - c.rival : c.rival;
    const bool alone = traffic_.started == traffic_.ended + 1 && chosen_ == ended_;
    choice.traffic = alone ? traffic_.started : 0;
    ++chosen_;
  }
  if (decides()) {
    const std::size_t at = call.number % (2 * shm::kSlots);
    state.ran[at] = {in_trial ? of : kClasses, choice.rival};  // other calls may begin before all ranks have
    words(node_.rank(), channel).decisions[at] = fixed ? 0 : decide(channel, of);
  }
  if (!fixed) choice.started = now();
  return choice;
}

void RivalChoices::end(int channel, const Call& call, const Choice& choice) {
  if (choice.started == 0) return;
  const bool clean = choice.traffic != 0 && choice.traffic == traffic_.started && chosen_ == ended_ + 1;
  ++ended_;
  words(node_.rank(), channel).times[call.number % (2 * shm::kSlots)] = (now() - choice.started) << 1 | clean;
}

void RivalChoices::apply(int channel, std::uint64_t number) {
  if (number < shm::kSlots) return;
  const std::uint64_t word =
      words(node_.members().front(), channel).decisions[(number - shm::kSlots) % (2 * shm::kSlots)];
  const auto of = static_cast<std::uint32_t>(word >> 8);
  if (word == 0 || of >= kClasses) return;
  Class& c = channel_of(channel).classes[of];
  c = {static_cast<std::int8_t>(word >> 1 & 1),
       static_cast<std::uint8_t>(word >> 2 & 1 ? 2 * RivalTrials::kRounds : 0)};
  if (!decides()) note(of, c.rival, 0);
}

void RivalChoices::collect(int channel, std::uint64_t number) {
  if (number < shm::kSlots) return;
  ChannelState& state = channel_of(channel);
  const std::size_t at = (number - shm::kSlots) % (2 * shm::kSlots);
  const Ran ran = state.ran[at];
  if (ran.of >= kClasses) return;
  RivalTrials& trials = state.trials.at(ran.of);
  if (!trials.trying()) return;
  std::uint64_t longest = 0;
  bool clean = true;
  for (const int r : node_.members()) {
    const std::uint64_t time = words(r, channel).times[at];
    longest = std::max(longest, time >> 1);
    clean = clean && (time & 1);
  }
  trials.add(ran.rival, longest, clean);
}

RivalChoices::Class RivalChoices::begin(ChannelState& state, std::uint32_t of, int first) {
  const auto known = remembered_.find(of);
  const bool anew = known == remembered_.end();
  const int rival = anew ? first : known->second.rival;
  if (decides())
    state.trials.try_emplace(of, anew ? RivalTrials(first) : RivalTrials(rival, known->second.speedup));
  // Reads reports_ unlocked: only the role holder writes it. Another channel may have noted the class.
  if (!reports_.contains(of)) note(of, rival, anew || !decides() ? 0 : known->second.speedup);
  return {static_cast<std::int8_t>(rival), static_cast<std::uint8_t>(anew ? 2 * RivalTrials::kRounds : 0)};
}

// The word of a decision; bit 0: there is one, 1: rival, 2: trial, from 8: class.
std::uint64_t RivalChoices::decide(int channel, std::uint32_t of) {
  RivalTrials& trials = channel_of(channel).trials.at(of);
  const std::uint64_t before = trials.trials();
  const auto decision = trials.next();
  if (trials.trials() != before) note(of, trials.current(), trials.speedup(), trials.clean());
  if (!decision) return 0;
  return std::uint64_t{of} << 8 | std::uint64_t{decision->trial} << 2 |
         static_cast<std::uint64_t>(decision->rival) << 1 | 1;
}

void RivalChoices::note(std::uint32_t of, int rival, double speedup, bool measured) {
  const std::uint32_t bucket = of / 2 % kBuckets;
  const std::uint64_t from = bucket == 0 ? 0 : std::uint64_t{1} << (bucket - 1);
  const Report report{static_cast<Collective>(of / 2 / kBuckets),
                      from,
                      end_of(from),
                      (of & 1) != 0,
                      rival,
                      speedup,
                      measured};
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, added] = reports_.try_emplace(of, report);
    known = !added && at->second.speedup > 0 && at->second.rival == rival;
    const bool before = at->second.measured;
    at->second = report;
    at->second.measured |= before;
  }
  if (speedup <= 0 || known || !log_enabled(LogLevel::Info)) return;
  char times[32];
  std::snprintf(times, sizeof times, "%.2f", speedup);
  log(LogLevel::Info, "COLL", "group ", group_, ": ", name(report.collective), ' ', bytes_text(from), '-',
      bytes_text(report.to_bytes), ' ', report.mapped ? "group" : "ordinary", " memory: ", rival_name(rival),
      ' ', times, "x as fast as ", rival_name(1 - rival));
}

std::vector<RivalChoices::Report> RivalChoices::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<Report> all;
  for (const auto& [of, report] : reports_) all.push_back(report);
  std::sort(all.begin(), all.end(), [](const Report& a, const Report& b) {
    return std::tuple(a.collective, a.mapped, a.from_bytes) <
           std::tuple(b.collective, b.mapped, b.from_bytes);
  });
  return all;
}

}  // namespace mpi_gdr
