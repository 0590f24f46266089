// Chooses between two schedules with the same result for the calls of a group on one node: the one that took
// less time here. Each class of calls (collective, size, kind of memory) has its own choice.
//
// Every rank measures its calls. The first member of the node, the decider, takes the longest time of all
// ranks and publishes decisions, which all ranks apply at the same calls. Calls with rivals are numbered by
// channel of the group, equally on all ranks:
//
//   the decider   at call n reads the times of call n - kSlots, and may publish decision n
//   every rank    at call n applies decision n - kSlots, then chooses; choices are made in the order of n
//
// A rank begins call n when all ranks have ended the use of slots that is kSlots uses earlier (NodeMemory).
// Call n - kSlots is that use or an earlier one: what ranks wrote for it is visible. It is not overwritten
// before call n + kSlots, which no rank begins before all ranks have ended call n.
//
// Used by the holder of the progress role, except report().
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/traffic.hpp"
#include "common/types.hpp"
#include "transport/shm/node_memory.hpp"

namespace mpi_gdr {

inline constexpr int kRivals = 2;
const char* rival_name(int rival);  // "zero_copy", "staged"

// Decides when a class tries both rivals and which one wins. Uses no clock and no shared memory.
class RivalTrials {
 public:
  static constexpr int kRounds = 6;                 // calls of each rival in a trial
  static constexpr int kRun = 3;                    // of these, in a row
  static constexpr std::uint64_t kFirstLook = 500;  // calls until the second trial; doubles with each
  static constexpr std::uint64_t kCheck = 50;       // calls until a remembered choice is checked
  static constexpr std::uint64_t kLastLook = 64000;

  // The class begins with a trial.
  explicit RivalTrials(int first) : current_(first) {}
  // As after a first trial in an earlier job, whose winner begins.
  RivalTrials(int remembered, double speedup)
      : current_(remembered), trying_(false), trials_(1), distance_(kCheck), speedup_(speedup) {}

  // `trial`: the next calls run both rivals in turn, kRounds times each; later ones run `rival`.
  struct Decision {
    int rival = 0;
    bool trial = false;
  };
  // Whether a trial's call runs the other rival; `left`: the trial's calls after it. Each rival runs several
  // times in a row, so that few calls find the other's data in the caches.
  static bool runs_other(int left) { return left / kRun % 2 == 0; }
  // To be called for every call of the class: returns the new decision for all ranks, if any.
  std::optional<Decision> next();
  // `clean`: no rank did anything else meanwhile.
  void add(int rival, std::uint64_t nanoseconds, bool clean);

  bool trying() const { return trying_; }
  int current() const { return current_; }
  std::uint64_t trials() const { return trials_; }  // completed
  // Speed of the current rival relative to the other, in the last trial; 0: none.
  double speedup() const { return speedup_; }
  bool clean() const { return clean_; }  // the last trial used only clean times

 private:
  struct Times {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    int count = 0;
    std::array<std::uint64_t, 2> all = {kNone, kNone}, clean = {kNone, kNone};  // the two shortest, ascending
  };
  bool end_trial();  // returns whether the current rival has changed

  int current_;
  bool trying_ = true, clean_ = false;
  std::uint64_t trials_ = 0, calls_ = 0, distance_ = kFirstLook;
  double speedup_ = 0;
  std::array<Times, kRivals> times_;
};

class RivalChoices {
 public:
  struct Report {
    Collective collective;
    std::uint64_t from_bytes, to_bytes;
    bool mapped;  // the tensors of all ranks are in group memory
    int rival;
    double speedup;         // over the other one; 0: not measured on this rank
    bool measured = false;  // by this rank, in this group, while nothing else ran
  };
  // `node` has all ranks of the group. `node` and `traffic` must outlive this object. `remembered`: equal on
  // all ranks; its classes have no first trial.
  RivalChoices(const shm::NodeMemory& node, const Traffic& traffic, std::string group,
               const std::vector<Report>& remembered = {});

  // One execution. `bytes`: equal on all ranks.
  struct Call {
    RivalChoices* choices = nullptr;  // null: what runs is fixed
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
  };
  // Whether all calls before this one have chosen.
  bool is_turn(int channel, std::uint64_t number) const { return channel_of(channel).next == number; }
  bool waits(int channel, std::uint64_t number) const { return channel_of(channel).next < number; }
  // Whether choose() will return `staged` for this call unless it is `mapped`. Called in turn, maybe before
  // other ranks have begun the call.
  bool runs_staged(int channel, const Call& call, Collective collective);
  // Returns the rival to run; called in turn, when all ranks have begun the call or runs_staged(). `first`:
  // the rival before anything was measured. `fixed`: runs `first` without measuring. The result goes to
  // end().
  struct Choice {
    int rival = 0;
    std::uint64_t started = 0;  // 0: not measured
    std::uint64_t traffic = 0;  // Traffic::started; 0: other operations ran
  };
  Choice choose(int channel, const Call& call, Collective collective, int first, bool mapped, bool fixed);
  // Before the slot is released.
  void end(int channel, const Call& call, const Choice& choice);

  std::vector<Report> report() const;  // any thread
  // Report::to_bytes of from_bytes, 0 or a power of two.
  static std::uint64_t end_of(std::uint64_t from) {
    return from == 0 ? 1 : from >> 63 ? ~std::uint64_t{0} : 2 * from;
  }

 private:
  static constexpr int kBuckets = 65;  // by std::bit_width
  static constexpr std::uint32_t kClasses = kCollectiveCount * kBuckets * 2;
  static std::uint32_t class_of(Collective collective, std::uint64_t bytes, bool mapped) {
    const auto bucket = static_cast<std::uint32_t>(std::bit_width(bytes));
    return (static_cast<std::uint32_t>(collective) * kBuckets + bucket) * 2 + mapped;
  }
  // Equal on all ranks after the same call.
  struct Class {
    std::int8_t rival = -1;  // -1: no call yet
    std::uint8_t trial = 0;  // calls left of a trial
  };
  struct Ran {
    std::uint32_t of = kClasses;  // kClasses: not in a trial
    int rival = 0;
  };
  struct ChannelState {
    std::uint64_t next = 0;
    std::array<Class, kClasses> classes;
    // Used by the decider only.
    std::array<Ran, 2 * shm::kSlots> ran;
    std::unordered_map<std::uint32_t, RivalTrials> trials;
  };
  ChannelState& channel_of(int channel) { return channels_[static_cast<std::size_t>(channel)]; }
  const ChannelState& channel_of(int channel) const { return channels_[static_cast<std::size_t>(channel)]; }
  shm::RivalWords& words(int rank, int channel) const { return node_.rival_words(rank, channel); }
  bool decides() const { return node_.members().front() == node_.rank(); }
  void apply(int channel, std::uint64_t number);
  void collect(int channel, std::uint64_t number);
  Class begin(ChannelState& state, std::uint32_t of, int first);
  std::uint64_t decide(int channel, std::uint32_t of);
  void note(std::uint32_t of, int rival, double speedup, bool measured = false);

  const shm::NodeMemory& node_;
  const Traffic& traffic_;
  const std::string group_;
  std::unordered_map<std::uint32_t, Report> remembered_;
  std::array<ChannelState, shm::kSlotChannels> channels_;
  std::uint64_t chosen_ = 0, ended_ = 0;  // of all channels
  mutable std::mutex mutex_;              // reports_
  std::unordered_map<std::uint32_t, Report> reports_;
};

}  // namespace mpi_gdr
