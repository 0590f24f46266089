// A collective is a schedule: what ONE rank does, as data. Builders (collectives/) make it, the checker
// proves it, the engine runs it. It is immutable once built and shared by threads and operations.
//
//   schedule = lanes that progress independently of each other
//   lane     = rounds, one after the other
//   round    = steps without order among them; the round is over when all its steps are
//
// Steps name slices of buffers in ELEMENTS of the collective's dtype, never pointers. In an all-to-all the
// Input or Output of another rank begins with the block that it sends to this rank, or gets from it: a rank
// does not know the others' counts.
//
// Messages match by (source, destination, lane) in schedule order: the k-th Send of lane L from a to b meets
// the k-th Recv of lane L from a on b. Steps of one round are taken in the order they stand.
//
// Ranks that share a node may also touch each other's memory: a slice names its owner. Signal and Wait order
// such accesses. The k-th Wait of lane L for rank a is over once a has come to its k-th Signal of lane L and
// all earlier rounds of that lane are over on a.
//
// A slice of Staging may be the mirror of an original in Input or Output of the same rank. Where the others
// reach that buffer, the data need not pass through Staging:
//   Copy into a mirror of Input    not made by a rank whose Input the others reach
//   mirror of rank r's Input as a  read from r's Input instead, if that is reached
//   source
//   Reduce into a mirror of        written to the Outputs of all ranks that are reached, at that offset, and
//   Output                         to Staging if there are others
//   Copy of such a mirror          not made by a rank whose Output the others reach
// Which are reached may differ from call to call and from rank to rank, and a device that runs the schedule
// learns it only when it meets the others (execution/device/peer_execution.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/names.hpp"

namespace mpi_gdr {

enum class Buffer : std::uint8_t {
  Input,    // the caller's source, read only
  Output,   // the caller's destination
  Scratch,  // the operation's own memory, Schedule::scratch_count elements, uninitialised
  Staging,  // the same in memory that the ranks of the node share, Schedule::staging_count elements
  Bounce,   // the same in host memory that a device reaches, too, Schedule::bounce_count elements
};
template <>
inline constexpr auto kNames<Buffer> = names("input", "output", "scratch", "staging", "bounce");
inline constexpr int kBufferCount = kNameCount<Buffer>;

struct Slice {
  Buffer buffer = Buffer::Output;
  std::uint64_t offset = 0;    // elements
  std::uint64_t count = 0;     // elements
  std::int32_t owner = -1;     // the rank of this node whose buffer it is; -1: this one. No Scratch, Bounce
  std::int32_t original = -1;  // into Schedule::originals; -1: none
  bool operator==(const Slice&) const = default;
};

enum class StepKind : std::uint8_t {
  Send,    // source(0) -> peer
  Recv,    // peer -> dst
  Copy,    // dst = source(0)
  Reduce,  // dst = op(source(0), source(1), ...) elementwise, folded from the left; dst may equal one source
  Signal,  // this rank has come here
  Wait,    // until `peer` has come to its next Signal
};
template <>
inline constexpr auto kNames<StepKind> = names("send", "recv", "copy", "reduce", "signal", "wait");
inline constexpr int kStepKindCount = kNameCount<StepKind>;

// What a Copy or Reduce does to the values on the way, so that AVG and PREMUL_SUM cost no pass of their own.
enum class Scale : std::uint8_t {
  None,
  PreMul,   // Copy only: multiply by the operation's factor (ReduceOp::PreMulSum)
  Average,  // Reduce and Copy: divide the result by the number of ranks (ReduceOp::Avg); integers truncate
};
template <>
inline constexpr auto kNames<Scale> = names("none", "premul", "average");

struct Step {
  StepKind kind = StepKind::Copy;
  Scale scale = Scale::None;
  std::int32_t peer = -1;          // Send, Recv, Wait: rank in the group
  Slice dst;                       // Recv, Copy, Reduce
  std::uint32_t first_source = 0;  // into Schedule::sources: Send, Copy take one, Reduce `source_count`
  std::uint32_t source_count = 0;
};

struct Round {
  std::uint32_t first_step = 0;  // into Schedule::steps
  std::uint32_t step_count = 0;
};

struct Lane {
  std::uint32_t first_round = 0;  // into Schedule::rounds
  std::uint32_t round_count = 0;
};

// What a slice of Staging mirrors, in the Input or Output of the slice's owner, as long; `offset` in
// elements.
struct Original {
  Buffer buffer = Buffer::Input;
  std::uint64_t offset = 0;
};

inline constexpr int kMaxLanes = 16;  // a lane's number travels in the message tag

struct Schedule {
  std::string algorithm;  // "ring", "recursive_doubling", ...
  std::vector<Lane> lanes;
  std::vector<Round> rounds;
  std::vector<Step> steps;
  std::vector<Slice> sources;
  std::vector<Original> originals;
  std::uint64_t scratch_count = 0;  // elements
  std::uint64_t staging_count = 0;  // elements
  std::uint64_t bounce_count = 0;   // elements
  bool shared = false;              // needs memory that the ranks share: Signal, Wait, slices of others
  bool messages = false;            // has Sends or Receives
  // Of a schedule in which ranks touch each other's Input and Output: one with the same result in which they
  // do not. The ranks choose when they begin, by measurement (execution/rivals.hpp), or by whether Input and
  // Output of all ranks are mapped. Null: none.
  std::shared_ptr<const Schedule> staged;
  // Some rank can finish without hearing from the ranks that it sends to (broadcast, reduce): the engine
  // throttles senders, lest a loop of them floods the receiver.
  bool one_way = false;
  // Each element of the result is one left fold in rank order (Algorithm::ordered), as the checker proves.
  bool ordered = false;
  // It is one Reduce of all contributions, as the checker proves: ReduceArgs::exact makes its sums exact.
  bool flat = false;

  std::span<const Round> rounds_of(const Lane& lane) const {
    return {rounds.data() + lane.first_round, lane.round_count};
  }
  std::span<const Step> steps_of(const Round& round) const {
    return {steps.data() + round.first_step, round.step_count};
  }
  std::span<const Slice> sources_of(const Step& step) const {
    return {sources.data() + step.first_source, step.source_count};
  }
  const Original* original(const Slice& slice) const {  // null: none
    return slice.original < 0 ? nullptr : &originals[static_cast<std::size_t>(slice.original)];
  }
  const Slice& source(const Step& step, std::uint32_t k = 0) const { return sources[step.first_source + k]; }
};

using SchedulePtr = std::shared_ptr<const Schedule>;

// Appends lanes, rounds and steps in order. Empty slices, on both sides of a message alike, and empty rounds
// are dropped. An empty lane keeps its place: a lane's number is equal on all ranks. Not thread-safe.
class ScheduleWriter {
 public:
  explicit ScheduleWriter(std::string algorithm) { schedule_.algorithm = std::move(algorithm); }
  // For a schedule like another one, of which all is here but lanes, their contents, originals and `staged`.
  explicit ScheduleWriter(const Schedule& like);
  void lane();   // begins a new lane (its number is its position, also when it stays empty)
  void round();  // begins a new round in the current lane
  // Without a lane() or round() before them, steps open the first ones.
  void send(int peer, Slice source) { step({.kind = StepKind::Send, .peer = peer}, {source}); }
  void recv(int peer, Slice dst) { step({.kind = StepKind::Recv, .peer = peer, .dst = dst}, {}); }
  void copy(Slice dst, Slice source, Scale scale = Scale::None) {
    step({.kind = StepKind::Copy, .scale = scale, .dst = dst}, {source});
  }
  void reduce(Slice dst, const std::vector<Slice>& sources, Scale scale = Scale::None) {
    step({.kind = StepKind::Reduce, .scale = scale, .dst = dst}, sources);
  }
  void signal() { step({.kind = StepKind::Signal}, {}); }
  void wait(int peer) { step({.kind = StepKind::Wait, .peer = peer}, {}); }
  // One of these, by its kind, with these sources: what of it has no meaning for that is left out.
  void step(Step step, const std::vector<Slice>& sources);
  // Reserves `count` elements of scratch, of staging or of bounce memory, and returns the slice.
  Slice scratch(std::uint64_t count) { return reserve(Buffer::Scratch, schedule_.scratch_count, count); }
  Slice staging(std::uint64_t count) { return reserve(Buffer::Staging, schedule_.staging_count, count); }
  Slice bounce(std::uint64_t count) { return reserve(Buffer::Bounce, schedule_.bounce_count, count); }
  // `slice` of Staging, as the mirror of `of`, as long, of Input or Output.
  Slice mirror(Slice slice, const Slice& of);
  void one_way() { schedule_.one_way = true; }
  void ordered() { schedule_.ordered = true; }
  void flat() { schedule_.ordered = schedule_.flat = true; }
  // Schedule::staged, whose messages the engine throttles alike.
  void staged(SchedulePtr instead);
  // Also if this rank itself has no step that says so: all ranks must see it alike.
  void shared() { schedule_.shared = true; }
  SchedulePtr finish();

 private:
  static Slice reserve(Buffer buffer, std::uint64_t& total, std::uint64_t count) {
    total += count;
    return {buffer, total - count, count};
  }
  Schedule schedule_;
};

}  // namespace mpi_gdr
