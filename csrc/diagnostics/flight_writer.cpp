#include "diagnostics/flight_writer.hpp"

#include "engine/operation.hpp"

namespace mpi_gdr {
namespace {

// How long a failure waits for the file.
constexpr auto kFlightPatience = std::chrono::seconds(1);

// Maximum of message counters per group, which then restart: a program may use a new tag for each message.
constexpr std::size_t kMessageNumbers = 65536;

}  // namespace

FlightWriter::FlightWriter(std::shared_ptr<FlightLog> log, FlightWriterOptions options)
    : log_(std::move(log)), rank_(options.rank), options_(std::move(options)) {}

std::string FlightWriter::path() const {
  if (options_.directory.empty()) return "";
  return options_.directory + "/mpi_gdr_trace_rank_" + std::to_string(rank_.load(std::memory_order_relaxed));
}

FlightWriter::Result FlightWriter::write(const std::string& reason, std::chrono::milliseconds patience,
                                         const std::string& wanted) const {
  const std::string to = wanted.empty() ? path() : wanted;
  if (to.empty()) return {"", "no directory is set"};
  try {
    return file_.write(
        to,
        [log = log_, options = options_, rank = rank_.load(std::memory_order_relaxed), reason]() mutable {
          options.rank = rank;
          return pickle(log->snapshot(), options, reason);
        },
        patience, wanted.empty() ? options_.use : FolderUse::Named);
  } catch (const std::exception& e) {  // no memory
    return {to, e.what()};
  }
}

std::uint64_t FlightWriter::issued(std::uint32_t group, const Operation& operation,
                                   const std::vector<Call>& calls) {
  const OperationInfo& info = operation.info();
  if (!info.sequences && !info.messages) return 0;  // an empty block
  std::unique_lock lock(messages_mutex_, std::defer_lock);
  if (info.messages) {
    lock.lock();
    if (messages_[group].size() > kMessageNumbers) messages_[group].clear();
  }
  return 1 +
         log_->record(info.channel, std::max(info.messages, 1u), [&](FlightEntry& entry, std::uint32_t i) {
           entry.group = group;
           entry.name = info.name;
           entry.torch_name = info.profiler_name;
           entry.detail = info.detail;
           entry.algorithm = info.algorithm;
           entry.inputs = info.inputs;
           entry.outputs = info.outputs;
           entry.created = log_->nanoseconds(info.issued);
           entry.timeout =
               std::chrono::duration_cast<std::chrono::nanoseconds>(info.deadline - info.issued).count();
           entry.sequence = info.sequence;
           entry.sequences = info.sequences;
           entry.bytes = info.bytes;
           if (!info.messages) return;
           const auto& message = std::get<MessageCall>(calls[i]);
           entry.send = message.send;
           entry.peer = message.peer;
           entry.tag = message.tag;
           entry.bytes = message.bytes;
           entry.sequence = messages_[group][{message.send, message.peer, message.tag}]++;
         });
}

template <typename Change>
void FlightWriter::change(const Operation& operation, std::uint64_t number, Change&& change) {
  if (number == 0) return;
  const std::uint64_t entries = std::max<std::uint64_t>(operation.info().messages, 1);
  for (std::uint64_t i = 0; i < entries; ++i) log_->change(number - 1 + i, change);
}

void FlightWriter::refused(const Operation& operation, std::uint64_t number) {
  change(operation, number, [](FlightEntry& entry) { entry.id = FlightEntry::kUnused; });
}

std::uint64_t FlightWriter::started(const Operation& operation, std::uint64_t number, Clock::time_point now) {
  change(operation, number, [&](FlightEntry& entry) { entry.started = log_->nanoseconds(now); });
  return number;
}

void FlightWriter::chosen(const Operation& operation, std::uint64_t number) {
  change(operation, number, [&](FlightEntry& entry) { entry.algorithm = operation.algorithm(); });
}

void FlightWriter::failed(const Operation& operation, std::uint64_t number, Clock::time_point now,
                          const std::string& error, const std::vector<int>* pending) {
  change(operation, number, [&](FlightEntry& entry) { entry.fail(log_->nanoseconds(now), error, pending); });
}

void FlightWriter::ended(const Operation& operation, std::uint64_t number, Clock::time_point now,
                         const std::string* error) {
  if (error) return failed(operation, number, now, *error, nullptr);
  change(operation, number, [&](FlightEntry& entry) { entry.ended = log_->nanoseconds(now); });
}

void FlightWriter::failed_elsewhere(const std::string& reason) {
  if (!path().empty()) write(reason, kFlightPatience / 2);  // failures of many ranks may arrive at once
}

std::string FlightWriter::group_failed(const std::string& reason) {
  return path().empty() ? "" : write_and_describe(reason, kFlightPatience);
}

std::string FlightWriter::write_and_describe(const std::string& reason,
                                             std::chrono::milliseconds patience) const {
  const Result result = write(reason, patience);
  return result.problem.empty() ? "; flight log: " + result.path
                                : "; the flight log could not be written: " + result.problem;
}

}  // namespace mpi_gdr
