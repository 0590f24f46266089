#include "job/member.hpp"

#include "common/record.hpp"

namespace mpi_gdr {
namespace {

constexpr const char* kWhat = "a member's record of a group";

const char* digit(bool flag) { return flag ? "1" : "0"; }

std::string packed(const std::vector<SharedSetting>& settings) {
  std::vector<std::string> fields;
  for (const SharedSetting& s : settings) fields.insert(fields.end(), {s.name, s.value, s.shown});
  return pack(fields);
}

std::vector<SharedSetting> unpacked_settings(const std::string& text) {
  RecordReader record(kWhat, text);
  std::vector<SharedSetting> settings;
  while (record.more()) {
    SharedSetting& setting = settings.emplace_back();
    setting.name = record.text("a setting's name");
    setting.value = record.text("a setting's value");
    setting.shown = record.text("a setting as it is shown");
  }
  return settings;
}

}  // namespace

std::string packed(const Member& m) {
  return pack({packed(m.settings), digit(m.accelerator), digit(m.served), digit(m.gpu_aware), m.host, m.cpus,
               m.job, m.ticket, m.choices});
}

Member unpacked_member(const std::string& blob) {
  RecordReader record(kWhat, blob);
  Member member;
  member.settings = unpacked_settings(record.text("settings"));
  member.accelerator = record.flag("accelerator");
  member.served = record.flag("served");
  member.gpu_aware = record.flag("gpu_aware");
  member.host = record.text("host");
  member.cpus = record.text("cpus");
  member.job = record.text("job");
  member.ticket = record.text("ticket");
  member.choices = record.text("choices");
  record.end();
  return member;
}

}  // namespace mpi_gdr
