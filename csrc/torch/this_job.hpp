// The job of this process, over MPI, and what c10d asks of it.
#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "job/job.hpp"
#include "torch/options.hpp"

namespace mpigdr::torch_binding {

// What a Python handler of a pending signal has raised (KeyboardInterrupt), else null: handlers of Python run
// on its main thread, which must ask for them while a call of ours waits. On other threads null at once.
// Takes the GIL.
std::exception_ptr pending_interrupt();

// Leaked: it outlives every atexit handler.
Job& this_job();

// The default group, or another one, as c10d describes it. `job_rank`, `job_size`, `job_store`: of the
// default group where it is another backend's; else -1, -1, null.
GroupRequest group_request(const c10d::DistributedBackendOptions& dist, const Options& options, int job_rank,
                           int job_size, const c10::intrusive_ptr<c10d::Store>& job_store);

// A group of these ranks of the job, made from a group that stands.
GroupRequest child_request(const Options& options, int rank, std::vector<int> members);

}  // namespace mpigdr::torch_binding
