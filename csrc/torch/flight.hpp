// The flight log and the trace as torch sees them: what of a c10d call goes into an entry, and the ones of
// the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/flight_writer.hpp"
#include "engine/group.hpp"
#include "engine/trace.hpp"
#include "torch/job.hpp"

namespace mpigdr::torch_binding {

// Null if MPI_GDR_FLIGHT_LOG=0. `job`: what tells this job from others on the node, equal on all ranks.
std::shared_ptr<FlightWriter> make_flight_writer(const std::string& job, int rank, int size);

// A name for a job that this process is rank 0 of: "20260131-235959-<64 random bits>", with Slurm's number in
// front. Other users of the host cannot guess it.
std::string new_job_name();

// Null without MPI_GDR_TRACE. Throws InvalidUsage, naming the variable, if the file cannot be written; leaves
// a trace without events there. `rank`, `size` of the world.
std::shared_ptr<Trace> make_trace(int rank, int size);

// Options with what the flight log and the trace show of `job`'s tensors. They are recorded as NCCL's are:
// the list of an all_gather, reduce_scatter or all_to_all as one flat tensor.
IssueOptions describe_tensors(const Job& job);

}  // namespace mpigdr::torch_binding
