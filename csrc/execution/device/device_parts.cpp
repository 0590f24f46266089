#include "execution/device/device_parts.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace mpi_gdr {
namespace {

using Queues = std::span<DeviceQueue* const>;
using On = DevicePart::On;

class Launcher {
 public:
  Launcher(const DeviceParts& parts, const StreamTarget& target) : parts_(parts), target_(target) {}

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
    const auto behind = static_cast<std::size_t>(part.depends_on);
    if (part.depends_on >= 0 && next_elsewhere(behind) != i)
      target_.device.order(first(parts_[behind].on), first(part.on));
    const bool alone = part.follows < 0 && part.depends_on < 0;
    DeviceQueue& before = alone ? target_.caller : first(part.on);
    used_others_ |= part.on == On::Others;
    // `conclude` submits to the first queue, behind everything.
    if (is_last(i) && used_others_) target_.device.order(first(On::Others), *target_.queues[0]);
    part.program->launch(target_.device, queues_of(i), before, is_last(i) ? target_.conclude : nullptr);
    // If the next part on the other queues depends on this one, order it here: later it would also wait for
    // the parts in between. If another part comes first on those queues, that part must not wait.
    const std::size_t next = next_elsewhere(i);
    if (next < parts_.size() && parts_[next].depends_on == static_cast<int>(i))
      target_.device.order(first(part.on), first(parts_[next].on));
  }

  bool is_last(std::size_t i) const { return i + 1 == parts_.size(); }
  Queues queues(On on) const {
    const Queues all = target_.queues;
    if (on == On::All || all.size() == 1) return all;
    return on == On::First ? all.first(1) : all.subspan(1);
  }
  Queues queues_of(std::size_t i) const { return queues(is_last(i) ? On::All : parts_[i].on); }
  DeviceQueue& first(On on) const { return *queues(on)[0]; }
  std::size_t next_elsewhere(std::size_t i) const {
    std::size_t k = i + 1;
    while (k < parts_.size() && parts_[k].on == parts_[i].on) ++k;
    return k;
  }

  const DeviceParts& parts_;
  const StreamTarget& target_;
  bool used_others_ = false;
};

// Used by the progress role.
class Progress : public Execution {
 public:
  explicit Progress(std::shared_ptr<const DeviceParts> parts)
      : parts_(std::move(parts)), done_(parts_->size()) {}
  bool advance() override {
    rounds_done_ = 0;
    for (std::size_t i = 0; i < done_.size(); ++i) {
      DeviceProgram& program = *(*parts_)[i].program;
      done_[i] = done_[i] || program.advance();
      rounds_done_ += program.rounds_done();
    }
    return std::find(done_.begin(), done_.end(), false) == done_.end();
  }
  // Without the parts that wait for an earlier part: no peer delays these.
  std::vector<int> pending_peers() const override {
    const auto is_over = [&](int before) { return before < 0 || done_[static_cast<std::size_t>(before)]; };
    std::vector<int> peers;
    for (std::size_t i = 0; i < done_.size(); ++i)
      if (const DevicePart& part = (*parts_)[i];
          !done_[i] && is_over(part.follows) && is_over(part.depends_on))
        for (const int peer : part.program->pending_peers()) peers.push_back(peer);
    return peers;
  }
  void abandon() noexcept override {
    for (const DevicePart& part : *parts_) part.program->abandon();
  }

 private:
  const std::shared_ptr<const DeviceParts> parts_;
  std::vector<bool> done_;
};

}  // namespace

void DeviceParts::launch(const StreamTarget& target) const { Launcher(*this, target).run(); }

// Parts inside a node first: they notify its other ranks that later data is invalid.
bool DeviceParts::release_device() const noexcept {
  bool through = true;
  for (const bool inside : {true, false})
    for (const DevicePart& part : *this)
      if ((part.on == On::First) == inside) through &= part.program->release_device();
  return through;
}

std::unique_ptr<Execution> progress_of(std::shared_ptr<const DeviceParts> parts) {
  return std::make_unique<Progress>(std::move(parts));
}

}  // namespace mpi_gdr
