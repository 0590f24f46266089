// The part of ONE rank in a collective, as data. Builders (collectives/) create it, the checker verifies it,
// the engine runs it. Immutable once built; shared by threads and operations.
//   schedule = lanes that progress independently of each other
//   lane     = rounds, one after the other
//   round    = unordered steps; it ends when all of them have
// Steps name slices of buffers in ELEMENTS of the collective's dtype. In an all-to-all, offset 0 of another
// rank's Input is its block for this rank, and of its Output the block from this rank: no rank has the
// others' counts.
//
// The k-th Send of lane L from a to b matches the k-th Recv of lane L from a on b. Steps of one round count
// in their order.
//
// Ranks of a node may access each other's memory (Slice::owner), ordered by Signal and Wait: the k-th Wait of
// lane L for rank a completes once a has reached its k-th Signal of lane L and completed all earlier rounds
// of that lane.
//
// A slice of Staging may mirror an original in Input or Output of the same rank. If other ranks can access
// that buffer, data bypasses Staging:
//   Copy into a mirror of Input         skipped on a rank whose Input is accessible
//   mirror of rank r's Input as source  read from r's Input instead, if accessible
//   Reduce into a mirror of Output      written to all accessible Outputs, and to Staging for other ranks
//   Copy of such a mirror               skipped on a rank whose Output is accessible
// Access may differ between calls and ranks (execution/device/peer_execution.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/names.hpp"

namespace mpi_gdr {

enum class Buffer : std::uint8_t {
  Input,    // the caller's source, read-only
  Output,   // the caller's destination
  Scratch,  // private, Schedule::scratch_count elements, uninitialised
  Staging,  // likewise in memory shared by the node's ranks, Schedule::staging_count elements
  Bounce,   // likewise in host memory that a device can access, Schedule::bounce_count elements
};
template <>
inline constexpr auto kNames<Buffer> = names("input", "output", "scratch", "staging", "bounce");
inline constexpr int kBufferCount = kNameCount<Buffer>;

struct Slice {
  Buffer buffer = Buffer::Output;
  std::uint64_t offset = 0;  // elements
  std::uint64_t count = 0;   // elements
  std::int32_t owner =
      -1;  // rank of this node that owns the buffer; -1: this one. Not for Scratch and Bounce
  std::int32_t original = -1;  // into Schedule::originals; -1: none
  bool operator==(const Slice&) const = default;
};

enum class StepKind : std::uint8_t {
  Send,    // source(0) -> peer
  Recv,    // peer -> dst
  Copy,    // dst = source(0)
  Reduce,  // dst = op(source(0), source(1), ...) elementwise, left fold; dst may equal one source
  Signal,  // this rank has reached this point
  Wait,    // until `peer` has reached its next Signal
};
template <>
inline constexpr auto kNames<StepKind> = names("send", "recv", "copy", "reduce", "signal", "wait");
inline constexpr int kStepKindCount = kNameCount<StepKind>;

// Scaling by a Copy or Reduce, which saves AVG and PREMUL_SUM an extra pass.
enum class Scale : std::uint8_t {
  None,
  PreMul,   // Copy only: multiplies by the operation's factor (ReduceOp::PreMulSum)
  Average,  // Reduce and Copy: divides by the number of ranks (ReduceOp::Avg); integers truncate
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

// The original of a slice of Staging, in the slice's owner's memory; same length, `offset` in elements.
struct Original {
  Buffer buffer = Buffer::Input;
  std::uint64_t offset = 0;
};

inline constexpr int kMaxLanes = 16;  // a lane's number is part of the message tag

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
  bool shared = false;              // needs shared memory: Signal, Wait, slices of other ranks
  bool messages = false;            // has Sends or Recvs
  // A schedule with the same result without accesses to other ranks' Input and Output. The ranks choose at
  // the start, by measurement (execution/rivals.hpp) or by whether these buffers are mapped. Null: none.
  std::shared_ptr<const Schedule> staged;
  // Some rank may finish before the ranks that it sends to (broadcast, reduce): the engine throttles senders.
  bool one_way = false;
  // Each element of the result is one left fold in rank order (Algorithm::ordered); verified by the checker.
  bool ordered = false;
  // One Reduce of all contributions, verified by the checker: ReduceArgs::exact makes its sums exact.
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

// Appends in order. Drops empty slices (alike on both ends of a message) and empty rounds, but keeps empty
// lanes: lane numbers are equal on all ranks. Not thread-safe.
class ScheduleWriter {
 public:
  explicit ScheduleWriter(std::string algorithm) { schedule_.algorithm = std::move(algorithm); }
  // Copies all properties of `like` except lanes, steps, originals and `staged`.
  explicit ScheduleWriter(const Schedule& like);
  void lane();   // begins a lane; its number is its position, even if it stays empty
  void round();  // begins a round in the current lane
  // A step without a lane() or round() before it opens the first ones.
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
  // Adds a step of any kind; fields without meaning for its kind are cleared.
  void step(Step step, const std::vector<Slice>& sources);
  Slice scratch(std::uint64_t count) { return reserve(Buffer::Scratch, schedule_.scratch_count, count); }
  Slice staging(std::uint64_t count) { return reserve(Buffer::Staging, schedule_.staging_count, count); }
  Slice bounce(std::uint64_t count) { return reserve(Buffer::Bounce, schedule_.bounce_count, count); }
  // Marks `slice` of Staging as the mirror of `of`, a slice of Input or Output of the same length.
  Slice mirror(Slice slice, const Slice& of);
  void one_way() { schedule_.one_way = true; }
  void ordered() { schedule_.ordered = true; }
  void flat() { schedule_.ordered = schedule_.flat = true; }
  // Sets Schedule::staged; inherits its one_way.
  void staged(SchedulePtr instead);
  // Schedule::shared must be equal on all ranks: called even on those without such steps.
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
