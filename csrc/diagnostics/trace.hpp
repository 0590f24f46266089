// Records operations and rounds (MPI_GDR_TRACE, docs/tracing.md) in two ring buffers of `capacity`
// records. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
//
// Threads: started(), chosen(), entered(), next_execution() and round() need the progress role; ended(),
// snapshot() and write() do not. The mutex is never held across a transport call.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/types.hpp"
#include "diagnostics/file_writer.hpp"
#include "diagnostics/flight_log.hpp"
#include "engine/observer.hpp"
#include "execution/observer.hpp"
#include "schedule/schedule.hpp"

namespace mpi_gdr {

struct TracedOperation {
  std::uint64_t id = 0;                             // counts from 1 as operations start
  std::int64_t issued = 0, started = 0, ended = 0;  // ended 0: not yet
  // Views: of texts that live as long as the process.
  std::string_view name, algorithm;  // "all_reduce", "ring"
  std::string_view dtype;            // "float32"; empty: none
  std::string group, detail;         // "0", "float32[1024] op=sum"
  std::uint64_t sequence = 0;
  std::uint64_t count = 0, bytes = 0;  // of this rank's contribution
  Channel channel = Channel::Collective;
  bool failed = false;
};

struct TracedRound {
  std::uint64_t operation = 0;  // TracedOperation::id
  // When the round began, had done its copies and reductions, and ended.
  std::int64_t began = 0, worked = 0, ended = 0;
  std::uint64_t sent = 0, received = 0, local = 0;  // bytes; local: read by copies and reductions
  std::uint32_t round = 0;                          // in the lane
  std::uint32_t execution = 0;                      // a run of a schedule; counts from 1 in the trace
  std::uint16_t steps[kStepKindCount] = {};         // by StepKind
  std::uint8_t lane = 0;
  static constexpr int kPeers = 8;
  std::uint8_t peer_count = 0;      // of `peers`; ranks beyond kPeers are dropped
  std::int32_t peers[kPeers] = {};  // ranks in the group, sorted and unique
};

struct TraceOptions {
  std::string path;        // of this rank's file
  int rank = 0, size = 1;  // of the world
  std::string version;     // of this library
  std::size_t capacity = 32768;
};

class Trace : public Observer, public ExecutionObserver, public std::enable_shared_from_this<Trace> {
 public:
  explicit Trace(TraceOptions options);

  const TraceOptions& options() const { return options_; }

  std::uint64_t started(const TracedOperation& operation);
  void chosen(const Operation& operation, std::uint64_t number) override;
  // Ignored if the record was reused or has ended.
  void ended(std::uint64_t id, Clock::time_point now, bool failed);
  void entered(std::uint64_t id) override { current_ = id; }
  std::uint64_t started(const Operation& operation, std::uint64_t number, Clock::time_point now) override;
  void settled(const Operation&, std::uint64_t id, Clock::time_point now, bool failed) override {
    ended(id, now, failed);
  }
  std::string group_failed(const std::string& reason) override;
  ExecutionObserver* rounds() override { return this; }
  std::unique_ptr<RoundObserver> observe(const Schedule& schedule, DataType dtype, int rank) override;
  std::uint32_t next_execution() { return ++executions_; }
  void round(TracedRound record);

  struct Snapshot {
    std::vector<TracedOperation> operations;  // by id
    std::vector<TracedRound> rounds;          // in the order of their ends
    std::uint64_t dropped_operations = 0, dropped_rounds = 0;
    std::int64_t now = 0;
    std::int64_t unix_offset = 0;  // from the steady clock to the epoch, ns
  };
  Snapshot snapshot() const;

  // Replaces the file. Never throws. The trace must be in a shared_ptr.
  FileWriter::Result write(const std::string& reason, std::chrono::milliseconds patience) const;

 private:
  // With mutex_ held. Null: never traced, or its record was reused.
  TracedOperation* find(std::uint64_t id);

  const TraceOptions options_;
  const FileWriter file_;
  // Guarded by the progress role.
  std::uint64_t current_ = 0;
  std::uint32_t executions_ = 0;

  mutable std::mutex mutex_;  // guards all below
  const std::unique_ptr<TracedOperation[]> operations_;
  const std::unique_ptr<TracedRound[]> rounds_;
  std::uint64_t operation_count_ = 0, round_count_ = 0;  // ever recorded
};

// JSON in the Chrome trace event format (object form), for Perfetto and chrome://tracing. `reason` is stored.
std::string chrome_trace(const Trace::Snapshot& shot, const TraceOptions& options, const std::string& reason);

// File of one rank: %r in `pattern` is its rank, %h the host, %p the process id. Without %r, a job of several
// ranks has ".rank<rank>" inserted before the extension: "step.rank3.json".
std::string trace_path(const std::string& pattern, int rank, int size);

}  // namespace mpi_gdr
