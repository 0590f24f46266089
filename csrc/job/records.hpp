// Files that a job leaves: the flight log and the trace of this process.
#pragma once

#include <memory>
#include <string>

#include "diagnostics/flight_writer.hpp"
#include "diagnostics/trace.hpp"

namespace mpi_gdr {

// The value of an environment variable, or "".
std::string variable(const char* name);

// "20260131-235959-<64 random bits>", after Slurm's job id, if any; not guessable by other users.
std::string new_job_name();

// Null if MPI_GDR_FLIGHT_LOG=0. `job`: its name, equal on all ranks; `version`: of this library.
std::shared_ptr<FlightWriter> make_flight_writer(const std::string& job, int rank, int size,
                                                 const std::string& version);

// Null without MPI_GDR_TRACE. Creates the file; throws InvalidUsage naming the variable if that fails.
std::shared_ptr<Trace> make_trace(int rank, int size, const std::string& version);

}  // namespace mpi_gdr
