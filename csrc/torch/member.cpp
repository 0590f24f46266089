#include "torch/member.hpp"

#include <ATen/DeviceAccelerator.h>

#include "bootstrap/host.hpp"
#include "common/env.hpp"
#include "torch/device_streams.hpp"
#include "torch/flight.hpp"
#include "transport/mpi/device_support.hpp"

namespace mpigdr::torch_binding {
namespace {

bool gpu_aware() {
  const Env::Choice choice = Env::get().gpu_aware;
  return choice == Env::Choice::Auto ? mpi::device_support().cuda : choice == Env::Choice::On;
}

}  // namespace

Member this_member(std::vector<SharedSetting> settings, std::string ticket) {
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  const bool accelerator = type.has_value(), served = accelerator && serves_devices(*type);
  return {std::move(settings), accelerator,   served,         accelerator && gpu_aware(),
          host_identity(),     usable_cpus(), new_job_name(), std::move(ticket)};
}

}  // namespace mpigdr::torch_binding
