#include "execution/device/device_parts.hpp"

#include <span>

namespace mpigdr {
namespace {

using Queues = std::span<DeviceQueue* const>;

class Launcher {
 public:
  Launcher(const std::vector<DevicePart>& parts, const StreamTarget& target)
      : parts_(parts), target_(target), ordered_(parts.size()) {}

  void run() {
    std::size_t i = 0;
    try {
      for (; i < parts_.size(); ++i) launch(i);
    } catch (...) {
      for (; i < parts_.size(); ++i) parts_[i].program->end_early(target_.device, queues_of(i));
      throw;
    }
  }

 private:
  void launch(std::size_t i) {
    const DevicePart& part = parts_[i];
    if (part.depends_on >= 0 && !ordered_[i])
      target_.device.order(first(parts_[static_cast<std::size_t>(part.depends_on)].on), first(part.on));
    const bool alone = part.follows < 0 && part.depends_on < 0;
    DeviceQueue& before = alone ? target_.caller : first(part.on);
    used_others_ |= part.on == DevicePart::On::Others;
    // What concludes is on the first queue, behind everything.
    if (is_last(i) && used_others_) target_.device.order(first(DevicePart::On::Others), *target_.queues[0]);
    part.program->launch(target_.device, queues_of(i), before, is_last(i) ? target_.conclude : nullptr);
    hand_over(i);
  }

  bool is_last(std::size_t i) const { return i + 1 == parts_.size(); }
  Queues queues(DevicePart::On on) const {
    const Queues all = target_.queues;
    if (on == DevicePart::On::All || all.size() == 1) return all;
    return on == DevicePart::On::First ? all.first(1) : all.subspan(1);
  }
  Queues queues_of(std::size_t i) const { return queues(is_last(i) ? DevicePart::On::All : parts_[i].on); }
  DeviceQueue& first(DevicePart::On on) const { return *queues(on)[0]; }

  // If the next part on the other queues waits for this one, it does so from now on, and not for what this
  // one's queues get in between. If another part comes first there, that must not wait.
  void hand_over(std::size_t i) {
    for (std::size_t k = i + 1; k < parts_.size(); ++k) {
      if (parts_[k].on == parts_[i].on) continue;
      if (parts_[k].depends_on != static_cast<int>(i)) return;
      target_.device.order(first(parts_[i].on), first(parts_[k].on));
      ordered_[k] = true;
      return;
    }
  }

  const std::vector<DevicePart>& parts_;
  const StreamTarget& target_;
  std::vector<bool> ordered_;  // by part: behind the one that it is behind
  bool used_others_ = false;
};

}  // namespace

void launch(const std::vector<DevicePart>& parts, const StreamTarget& target) {
  Launcher(parts, target).run();
}

}  // namespace mpigdr
