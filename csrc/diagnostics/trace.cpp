#include "diagnostics/trace.hpp"

#include <algorithm>

#include "engine/group_state.hpp"
#include "engine/operation.hpp"

namespace mpi_gdr {
namespace {

// Short: the caller may hold the progress role, and several groups may fail at once.
constexpr auto kTracePatience = std::chrono::milliseconds(50);

template <typename T>
std::vector<T> last_of(const T* ring, std::uint64_t count, std::size_t capacity) {
  std::vector<T> records;
  const std::uint64_t kept = std::min<std::uint64_t>(count, capacity);
  records.reserve(kept);
  for (std::uint64_t i = count - kept; i < count; ++i) records.push_back(ring[i % capacity]);
  return records;
}

void add_peer(TracedRound& record, std::int32_t peer, std::int32_t self) {
  if (peer < 0 || peer == self) return;
  std::int32_t* const end = record.peers + record.peer_count;
  std::int32_t* const at = std::lower_bound(record.peers, end, peer);
  if ((at != end && *at == peer) || record.peer_count == TracedRound::kPeers) return;
  std::copy_backward(at, end, end + 1);
  *at = peer;
  ++record.peer_count;
}

// Observes one schedule. Used by the holder of the progress role; the trace outlives it.
class RoundTrace final : public RoundObserver {
 public:
  RoundTrace(Trace& trace, const Schedule& schedule, DataType dtype, int rank)
      : trace_(trace),
        schedule_(schedule),
        item_size_(item_size(dtype)),
        rank_(rank),
        lanes_(schedule.lanes.size()) {}
  void began(int lane) override { lanes_[static_cast<std::size_t>(lane)].began = Clock::now(); }
  void worked(int lane) override { lanes_[static_cast<std::size_t>(lane)].worked = Clock::now(); }
  void ended(int lane, std::uint32_t index, const Round& round) override {
    // Not in the constructor, which runs on the issuing thread.
    if (execution_ == 0) execution_ = trace_.next_execution();
    const LaneTimes& times = lanes_[static_cast<std::size_t>(lane)];
    TracedRound record;
    record.began = to_nanoseconds(times.began);
    record.worked = to_nanoseconds(times.worked);
    record.ended = to_nanoseconds(Clock::now());
    record.round = index;
    record.execution = execution_;
    record.lane = static_cast<std::uint8_t>(lane);
    for (std::uint32_t i = 0; i < round.step_count; ++i) {
      const Step& step = schedule_.steps[round.first_step + i];
      ++record.steps[static_cast<int>(step.kind)];
      add_peer(record, step.peer, rank_);
      switch (step.kind) {
        case StepKind::Send:
          record.sent += schedule_.source(step).count * item_size_;
          break;
        case StepKind::Recv:
          record.received += step.dst.count * item_size_;
          break;
        case StepKind::Copy:
        case StepKind::Reduce:
          record.local += step.dst.count * step.source_count * item_size_;
          add_peer(record, step.dst.owner, rank_);
          for (std::uint32_t k = 0; k < step.source_count; ++k)
            add_peer(record, schedule_.source(step, k).owner, rank_);
          break;
        case StepKind::Signal:
        case StepKind::Wait:
          break;
      }
    }
    trace_.round(record);
  }

 private:
  struct LaneTimes {
    Clock::time_point began, worked;
  };
  Trace& trace_;
  const Schedule& schedule_;
  const std::uint64_t item_size_;
  const std::int32_t rank_;
  std::uint32_t execution_ = 0;
  std::vector<LaneTimes> lanes_;
};

}  // namespace

Trace::Trace(TraceOptions options)
    : options_(std::move(options)),
      operations_(new TracedOperation[options_.capacity]),
      rounds_(new TracedRound[options_.capacity]) {}

std::uint64_t Trace::started(const TracedOperation& operation) {
  std::lock_guard lock(mutex_);
  TracedOperation& record = operations_[operation_count_++ % options_.capacity];
  record = operation;
  record.id = operation_count_;
  return record.id;
}

std::uint64_t Trace::started(const Operation& operation, std::uint64_t, Clock::time_point now) {
  const OperationInfo& info = operation.info();
  TracedOperation record;
  record.issued = to_nanoseconds(info.issued);
  record.started = to_nanoseconds(now);
  record.name = info.name;
  record.group = operation.group().name();
  record.algorithm = info.algorithm;
  record.dtype = info.dtype;
  record.detail = info.detail.str();
  record.sequence = info.sequence;
  record.count = info.bytes / info.item_size;
  record.bytes = info.bytes;
  record.channel = info.channel;
  return started(record);
}

std::string Trace::group_failed(const std::string& reason) {
  write(reason, kTracePatience);
  return "";
}

void Trace::chosen(const Operation& operation, std::uint64_t id) {
  std::lock_guard lock(mutex_);
  if (TracedOperation* const record = find(id)) record->algorithm = operation.algorithm();
}

void Trace::ended(std::uint64_t id, Clock::time_point now, bool failed) {
  std::lock_guard lock(mutex_);
  TracedOperation* const record = find(id);
  if (!record || record->ended) return;
  record->ended = to_nanoseconds(now);
  record->failed = failed;
}

TracedOperation* Trace::find(std::uint64_t id) {
  TracedOperation& record = operations_[(id - 1) % options_.capacity];
  return id != 0 && record.id == id ? &record : nullptr;
}

void Trace::round(TracedRound record) {
  record.operation = current_;
  std::lock_guard lock(mutex_);
  rounds_[round_count_++ % options_.capacity] = record;
}

Trace::Snapshot Trace::snapshot() const {
  Snapshot shot;
  shot.now = to_nanoseconds(Clock::now());
  shot.unix_offset = to_nanoseconds(std::chrono::system_clock::now()) - shot.now;
  std::lock_guard lock(mutex_);
  shot.operations = last_of(operations_.get(), operation_count_, options_.capacity);
  shot.rounds = last_of(rounds_.get(), round_count_, options_.capacity);
  shot.dropped_operations = operation_count_ - shot.operations.size();
  shot.dropped_rounds = round_count_ - shot.rounds.size();
  return shot;
}

std::unique_ptr<RoundObserver> Trace::observe(const Schedule& schedule, DataType dtype, int rank) {
  return std::make_unique<RoundTrace>(*this, schedule, dtype, rank);
}

FileWriter::Result Trace::write(const std::string& reason, std::chrono::milliseconds patience) const {
  try {
    return file_.write(
        options_.path,
        [self = shared_from_this(), reason] {
          return chrome_trace(self->snapshot(), self->options_, reason);
        },
        patience);
  } catch (const std::exception& e) {  // no memory
    return {options_.path, e.what()};
  }
}

}  // namespace mpi_gdr
