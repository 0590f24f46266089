// What a job leaves behind: the flight log and the trace of this process, and the job's name in them.
#pragma once

#include <memory>
#include <string>

#include "diagnostics/flight_writer.hpp"
#include "diagnostics/trace.hpp"

namespace mpi_gdr {

// Of the environment; "" if it is not set.
std::string variable(const char* name);

// A name for a job that this process is rank 0 of: "20260131-235959-<64 random bits>", with Slurm's number in
// front. Other users of the host cannot guess it.
std::string new_job_name();

// Null if MPI_GDR_FLIGHT_LOG=0. `job`: its name, equal on all ranks; `version`: of this library.
std::shared_ptr<FlightWriter> make_flight_writer(const std::string& job, int rank, int size,
                                                 const std::string& version);

// Null without MPI_GDR_TRACE. Throws InvalidUsage, naming the variable, if the file cannot be written; leaves
// a trace without events there. `rank`, `size` of the world.
std::shared_ptr<Trace> make_trace(int rank, int size, const std::string& version);

}  // namespace mpi_gdr
