// A device program as a part of an operation: the progress role drops its parts when they are done, which
// may be before the issuing thread has launched the last of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "execution/device/device_parts.hpp"
#include "execution/device/gate.hpp"

namespace mpigdr {

class ProgramPart : public Execution {
 public:
  // `before`: whether those that it stands behind are done.
  ProgramPart(std::shared_ptr<DeviceProgram> program, std::vector<std::shared_ptr<const bool>> before)
      : program_(std::move(program)), before_(std::move(before)) {}
  // Of the progress role, as all that follows.
  std::shared_ptr<const bool> done() const { return done_; }
  bool advance() override {
    *done_ = program_->advance();
    rounds_done_ = program_->rounds_done();
    return *done_;
  }
  // No peer is to blame for what has not begun.
  std::vector<int> pending_peers() const override {
    const bool begun = std::all_of(before_.begin(), before_.end(), [](const auto& done) { return *done; });
    return begun ? program_->pending_peers() : std::vector<int>{};
  }
  void abandon() noexcept override { program_->abandon(); }

 private:
  const std::shared_ptr<DeviceProgram> program_;
  const std::vector<std::shared_ptr<const bool>> before_;
  const std::shared_ptr<bool> done_ = std::make_shared<bool>(false);
};

// For Operation::on_release_device(). Keeps none of them.
inline std::function<bool()> releases(const std::vector<DevicePart>& parts,
                                      const std::shared_ptr<Gate>& gate) {
  // Those inside a node first: they tell its other ranks that what comes now is worth nothing.
  std::vector<std::weak_ptr<DeviceProgram>> weak;
  for (const bool inside : {true, false})
    for (const DevicePart& part : parts)
      if ((part.on == DevicePart::On::First) == inside) weak.emplace_back(part.program);
  return [weak, gate = std::weak_ptr<Gate>(gate)] {
    bool through = true;
    for (const auto& program : weak)
      if (const auto held = program.lock()) through &= held->release_device();
    if (const auto held = gate.lock()) held->open();
    return through;
  };
}

}  // namespace mpigdr
