// Records the flight log and writes a pickle per rank in the layout of torch's flight recorder, version 2.10
// (torch/csrc/distributed/c10d/FlightRecorder.hpp). Thread-safe. Writing never throws or fails the job.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "diagnostics/file_writer.hpp"
#include "diagnostics/flight_log.hpp"
#include "engine/observer.hpp"

namespace mpi_gdr {

struct FlightWriterOptions {
  std::string directory;             // created with the first file; empty: write() needs a path
  int rank = 0, size = 1;            // of the world
  std::string version;               // of this library
  FolderUse use = FolderUse::Named;  // of the directory
};

class FlightWriter : public Observer {
 public:
  FlightWriter(std::shared_ptr<FlightLog> log, FlightWriterOptions options);

  const std::shared_ptr<FlightLog>& log() const { return log_; }
  void set_rank(int rank) { rank_.store(rank, std::memory_order_relaxed); }
  // "<directory>/mpi_gdr_trace_rank_<rank>"; "" without a directory.
  std::string path() const;

  using Result = FileWriter::Result;
  // Replaces the file at `path` ("": path()) atomically, with `reason` in it. Blocks at most for `patience`.
  Result write(const std::string& reason, std::chrono::milliseconds patience,
               const std::string& path = {}) const;
  // Writes the file; returns "; flight log: /tmp/..." or the error, to append to a message.
  std::string write_and_describe(const std::string& reason, std::chrono::milliseconds patience) const;

  std::uint32_t opened(const GroupInfo& group) override { return log_->add_group(group); }
  void describe(std::uint32_t group, const std::string& description) override {
    log_->describe(group, description);
  }
  std::uint64_t issued(std::uint32_t group, const Operation& operation,
                       const std::vector<Call>& calls) override;
  void refused(const Operation& operation, std::uint64_t number) override;
  std::uint64_t started(const Operation& operation, std::uint64_t number, Clock::time_point now) override;
  void chosen(const Operation& operation, std::uint64_t number) override;
  void failed(const Operation& operation, std::uint64_t number, Clock::time_point now,
              const std::string& error, const std::vector<int>* pending) override;
  void ended(const Operation& operation, std::uint64_t number, Clock::time_point now,
             const std::string* error) override;
  void failed_elsewhere(const std::string& reason) override;
  std::string group_failed(const std::string& reason) override;

 private:
  // Changes the operation's entries: one, or one per message. `number`: 1 + the first entry's id; 0: none.
  template <typename Change>
  void change(const Operation& operation, std::uint64_t number, Change&& change);

  const std::shared_ptr<FlightLog> log_;
  std::mutex messages_mutex_;
  // Next sequence number by group and (send, peer, tag).
  std::map<std::uint32_t, std::map<std::tuple<bool, int, int>, std::uint64_t>> messages_;
  std::atomic<int> rank_;
  const FlightWriterOptions options_;
  const FileWriter file_;
};

std::string pickle(const FlightLog::Snapshot& shot, const FlightWriterOptions& options,
                   const std::string& reason);

}  // namespace mpi_gdr
