#include "torch/member.hpp"

#include <ATen/DeviceAccelerator.h>

#include "bootstrap/host.hpp"
#include "bootstrap/rendezvous.hpp"
#include "torch/flight.hpp"

namespace mpigdr::torch_binding {
namespace {

enum Field { kSettings, kAccelerator, kHost, kCpus, kJob, kSegment };

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

}  // namespace

Member this_member(std::vector<SharedSetting> settings, std::string ticket) {
  return {std::move(settings), at::getAccelerator().has_value(),
          host_identity(),     usable_cpus(),
          new_job_name(),      std::move(ticket)};
}

std::string packed(const Member& m) {
  return pack({packed(m.settings), m.accelerator ? "1" : "0", m.host, m.cpus, m.job, m.ticket});
}

Member unpacked_member(const std::string& blob) {
  const std::vector<std::string> fields = unpack(blob);
  return {unpacked_settings(fields[kSettings]),
          fields[kAccelerator] == "1",
          fields[kHost],
          fields[kCpus],
          fields[kJob],
          fields[kSegment]};
}

}  // namespace mpigdr::torch_binding
