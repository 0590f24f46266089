#pragma once

#include <torch/version.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "job/job.hpp"

namespace mpi_gdr::torch_binding {

inline constexpr const char* kBackendName = "mpi-gdr";

// pg_options: `mpi_backend.Options()`. Copyable, since split_group deep-copies them. Not synchronised.
struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, timeout) {}
  Options(const Options&) = default;
  std::string selection, bits;  // as MPI_GDR_SELECT and MPI_GDR_BITS; equal on all members
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  // c10d slices a derived class without this.
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
    return c10::make_intrusive<Options>(*this);
  }
#endif
};

// Runs pending Python signal handlers and returns the exception that one raised (KeyboardInterrupt), or null.
// Takes the GIL on the main thread and does nothing on others. A thread that waits must call it repeatedly.
std::exception_ptr pending_interrupt();

Job& this_job();  // leaked: used by atexit handlers

// `job_rank`, `job_size`, `job_store`: those of a default group of another backend; else -1, -1, null.
GroupRequest group_request(const c10d::DistributedBackendOptions& dist, const Options& options, int job_rank,
                           int job_size, const c10::intrusive_ptr<c10d::Store>& job_store);

GroupRequest child_request(const Options& options, int rank, std::vector<int> members);

}  // namespace mpi_gdr::torch_binding
