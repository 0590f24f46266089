// The job of this process, over MPI, and what c10d asks of it.
#pragma once

#include <torch/version.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "job/job.hpp"

namespace mpi_gdr::torch_binding {

inline constexpr const char* kBackendName = "mpi-gdr";

// pg_options of the backend: `mpi_backend.Options()`. The timeout is c10d's own. Copyable, because
// split_group deep-copies a backend's options. Plain data: the usual rules for sharing between threads.
struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, timeout) {}
  Options(const Options&) = default;
  // As MPI_GDR_SELECT and MPI_GDR_BITS, for this group. Equal on all members.
  std::string selection, bits;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  // A derived class that does not override this is sliced by c10d.
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
    return c10::make_intrusive<Options>(*this);
  }
#endif
};

// What a Python handler of a pending signal has raised (KeyboardInterrupt), else null. Python runs handlers
// on its main thread, which must call this while it waits in a call of ours. Takes the GIL there.
std::exception_ptr pending_interrupt();

// Leaked: it outlives every atexit handler.
Job& this_job();

// The default group, or another one, as c10d describes it. `job_rank`, `job_size`, `job_store`: of the
// default group where it is another backend's; else -1, -1, null.
GroupRequest group_request(const c10d::DistributedBackendOptions& dist, const Options& options, int job_rank,
                           int job_size, const c10::intrusive_ptr<c10d::Store>& job_store);

// A group of these ranks of the job, made from a group that stands.
GroupRequest child_request(const Options& options, int rank, std::vector<int> members);

}  // namespace mpi_gdr::torch_binding
