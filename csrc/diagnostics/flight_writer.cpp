#include "diagnostics/flight_writer.hpp"

namespace mpigdr {

FlightWriter::FlightWriter(std::shared_ptr<FlightLog> log, FlightWriterOptions options)
    : log_(std::move(log)),
      rank_(options.rank),
      options_(std::make_shared<FlightWriterOptions>(std::move(options))) {}

std::string FlightWriter::path() const {
  if (options_->directory.empty()) return "";
  return options_->directory + "/mpi_gdr_trace_rank_" + std::to_string(rank_.load(std::memory_order_relaxed));
}

FlightWriter::Result FlightWriter::write(const std::string& reason, std::chrono::milliseconds patience,
                                         const std::string& wanted) const {
  const std::string to = wanted.empty() ? path() : wanted;
  if (to.empty()) return {"", "no directory is set"};
  try {
    return file_.write(
        to,
        [log = log_, options = *options_, rank = rank_.load(std::memory_order_relaxed), reason]() mutable {
          options.rank = rank;
          return pickle(log->snapshot(), options, reason);
        },
        patience, wanted.empty() ? options_->use : FolderUse::Named);
  } catch (const std::exception& e) {  // no memory
    return {to, e.what()};
  }
}

std::string FlightWriter::write_and_tell(const std::string& reason,
                                         std::chrono::milliseconds patience) const {
  const Result result = write(reason, patience);
  return result.problem.empty() ? "; flight log: " + result.path
                                : "; the flight log could not be written: " + result.problem;
}

}  // namespace mpigdr
