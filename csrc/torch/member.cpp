#include "torch/member.hpp"

#include <ATen/DeviceAccelerator.h>

#include "bootstrap/host.hpp"
#include "bootstrap/rendezvous.hpp"
#include "common/env.hpp"
#include "torch/device_streams.hpp"
#include "torch/flight.hpp"
#include "transport/mpi/device_support.hpp"

namespace mpigdr::torch_binding {
namespace {

enum Field { kSettings, kAccelerator, kServed, kGpuAware, kHost, kCpus, kJob, kSegment };

std::string packed(const std::vector<SharedSetting>& settings) {
  std::vector<std::string> fields;
  for (const SharedSetting& s : settings) fields.insert(fields.end(), {s.name, s.value, s.shown});
  return pack(fields);
}

std::vector<SharedSetting> unpacked_settings(const std::string& text) {
  const std::vector<std::string> fields = unpack(text);
  std::vector<SharedSetting> settings;
  for (std::size_t i = 0; i + 2 < fields.size(); i += 3)
    settings.push_back({fields[i], fields[i + 1], fields[i + 2]});
  return settings;
}

bool gpu_aware() {
  const Env::Choice choice = Env::get().gpu_aware;
  return choice == Env::Choice::Auto ? mpi::device_support().cuda : choice == Env::Choice::On;
}

}  // namespace

Member this_member(std::vector<SharedSetting> settings, std::string ticket) {
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  const bool accelerator = type.has_value(), served = accelerator && device_library(*type);
  return {std::move(settings), accelerator,   served,         accelerator && gpu_aware(),
          host_identity(),     usable_cpus(), new_job_name(), std::move(ticket)};
}

std::string packed(const Member& m) {
  return pack({packed(m.settings), m.accelerator ? "1" : "0", m.served ? "1" : "0", m.gpu_aware ? "1" : "0",
               m.host, m.cpus, m.job, m.ticket});
}

Member unpacked_member(const std::string& blob) {
  const std::vector<std::string> fields = unpack(blob);
  return {unpacked_settings(fields[kSettings]),
          fields[kAccelerator] == "1",
          fields[kServed] == "1",
          fields[kGpuAware] == "1",
          fields[kHost],
          fields[kCpus],
          fields[kJob],
          fields[kSegment]};
}

}  // namespace mpigdr::torch_binding
