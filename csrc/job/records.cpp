#include "job/records.hpp"

#include <cctype>
#include <cstdlib>
#include <ctime>

#include "bootstrap/host.hpp"
#include "common/env.hpp"
#include "common/error.hpp"

namespace mpi_gdr {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

namespace {

std::string plain(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return text;
}

}  // namespace

std::string new_job_name() {
  char when[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::strftime(when, sizeof when, "%Y%m%d-%H%M%S", &local);
  const std::string slurm = plain(variable("SLURM_JOB_ID"));
  return (slurm.empty() ? "" : slurm + "-") + when + "-" + random_nonce();
}

std::shared_ptr<FlightWriter> make_flight_writer(const std::string& job, int rank, int size,
                                                 const std::string& version) {
  const Env& env = Env::get();
  if (env.flight_log == 0) return nullptr;
  FlightWriterOptions options{env.flight_dir, rank, size, version};
  if (options.directory.empty()) {
    const std::string base = variable("TMPDIR");
    options.directory = (base.empty() ? "/tmp" : base) + "/mpi_gdr_flight_" + plain(job);
    options.use = FolderUse::Job;
  }
  return std::make_shared<FlightWriter>(std::make_shared<FlightLog>(env.flight_log), std::move(options));
}

std::shared_ptr<Trace> make_trace(int rank, int size, const std::string& version) {
  const Env& env = Env::get();
  if (env.trace.empty()) return nullptr;
  auto trace = std::make_shared<Trace>(TraceOptions{trace_path(env.trace, rank, size), rank, size, version,
                                                    static_cast<std::size_t>(env.trace_events)});
  // Fails at the start, not at the end of the job, and replaces the file of an earlier job.
  const FileWriter::Result result = trace->write("start", std::chrono::seconds(30));
  if (!result.problem.empty())
    fail(ErrorCode::InvalidUsage, "MPI_GDR_TRACE=", env.trace, ": the trace of rank ", rank,
         " cannot be written: ", result.problem, "; expected the path of a file that can be made");
  return trace;
}

}  // namespace mpi_gdr
