#include "c10d/this_job.hpp"

#include <ATen/DeviceAccelerator.h>
#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <numeric>

#include "c10d/device_streams.hpp"
#include "c10d/store.hpp"
#include "transport/load.hpp"

namespace mpi_gdr::torch_binding {
namespace {

Accelerator accelerator() {
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  return {type.has_value(), type && serves_device(c10::Device(*type))};
}

void check_interrupt() {
  if (const std::exception_ptr raised = pending_interrupt()) std::rethrow_exception(raised);
}

}  // namespace

std::exception_ptr pending_interrupt() {
  if (::syscall(SYS_gettid) != ::getpid() || !Py_IsInitialized()) return nullptr;
  const pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? nullptr : std::make_exception_ptr(pybind11::error_already_set());
}

Job& this_job() {
  static Job* const job = new Job(network(), {MPI_GDR_VERSION, "torch " TORCH_VERSION, check_interrupt});
  return *job;
}

GroupRequest group_request(const c10d::DistributedBackendOptions& dist, const Options& options, int job_rank,
                           int job_size, const c10::intrusive_ptr<c10d::Store>& job_store) {
  GroupRequest request;
  request.name = dist.group_id;
  request.rank = dist.group_rank;
  request.members.assign(dist.global_ranks_in_group.begin(), dist.global_ranks_in_group.end());
  request.is_default = request.members.empty();
  request.job_rank = request.is_default || job_rank < 0 ? dist.group_rank : job_rank;
  request.job_size = request.is_default || job_size < 0 ? dist.group_size : job_size;
  if (request.is_default) {
    request.members.resize(static_cast<std::size_t>(request.job_size));
    std::iota(request.members.begin(), request.members.end(), 0);
  }
  request.store = [store = request.is_default || !job_store ? dist.store : job_store] {
    return std::make_unique<C10dStore>(store);
  };
  request.timeout = options.timeout;
  request.selection = {options.selection, options.bits};
  request.accelerator = accelerator;
  return request;
}

GroupRequest child_request(const Options& options, int rank, std::vector<int> members) {
  const auto job = this_job().membership();
  GroupRequest request;
  request.name = options.group_name;
  request.rank = rank;
  request.members = std::move(members);
  request.job_rank = job->rank;
  request.job_size = job->size();
  request.timeout = options.timeout;
  request.selection = {options.selection, options.bits};
  request.accelerator = accelerator;
  return request;
}

}  // namespace mpi_gdr::torch_binding
