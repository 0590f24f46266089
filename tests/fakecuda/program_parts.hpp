// The order of an operation's device programs (execution/device/device_parts.hpp), and programs that end
// early (execution/device/device_program.hpp).
#pragma once

#include "execution/device/device_parts.hpp"
#include "peer_runs.hpp"

namespace fakecuda_test {

using Word = std::uint64_t;

// One copy, on the first queue.
class CopyOneWord : public DeviceProgram {
 public:
  CopyOneWord(std::shared_ptr<StreamFlagPool> flags, Word* to, const Word* from)
      : DeviceProgram(0, {}, std::move(flags)), to_(to), from_(from) {}
  std::vector<int> pending_peers() const override { return {}; }
  void abandon() noexcept override {}

 private:
  void submit(Device& device, std::span<DeviceQueue* const> queues, DeviceQueue& caller) override {
    if (&caller != queues[0]) device.order(caller, *queues[0]);
    queues[0]->copy(to_, from_, sizeof(Word));
  }
  bool carry() override { return flags_.device_done(); }
  void release_waits() noexcept override {}

  Word* const to_;
  const Word* const from_;
};

class ProgramParts {
 public:
  explicit ProgramParts(Device& device)
      : device_(device),
        caller_(device.make_queue()),
        owned_{device.make_queue(), device.make_queue()},
        host_(device),
        flags_(std::make_shared<StreamFlagPool>(device, 8)),
        words_(static_cast<Word*>(device.allocate(9 * sizeof(Word)))),
        given_(reinterpret_cast<Word*>(host_.take(8 * sizeof(Word)))) {}

  // Words 0 and 1 pass through parts on both queues to 6 and 7, with every kind of order.
  void all_kinds_of_order() {
    const auto part = [&](DevicePart::On on, int from, int to, int follows, int behind) {
      return DevicePart{std::make_shared<CopyOneWord>(flags_, words_ + to, words_ + from), on, follows,
                        behind};
    };
    using enum DevicePart::On;
    const DeviceParts parts{{part(First, 0, 2, -1, -1), part(Others, 1, 3, -1, -1), part(Others, 2, 4, 1, 0),
                             part(First, 4, 5, 0, 2), part(Others, 3, 8, 2, -1), part(First, 5, 6, 3, -1)}};
    for (Word value = 1; value < 20; value += 2) {
      given_[0] = value;
      given_[1] = value + 1;
      caller_->copy(words_, given_, 2 * sizeof(Word));
      DeviceQueue* const queues[] = {owned_[0].get(), owned_[1].get()};
      StreamTarget target{.device = device_, .queues = queues, .caller = *caller_};
      target.conclude = [&] { owned_[0]->copy(words_ + 7, words_ + 8, sizeof(Word)); };
      parts.launch(target);
      device_.order(*owned_[0], *caller_);
      caller_->copy(given_ + 6, words_ + 6, 2 * sizeof(Word));
      caller_->synchronize();
      CHECK(given_[6] == value && given_[7] == value + 1);
    }
  }

  // Both queues must reach the end of the submitted work.
  void early_end() {
    for (const auto& late : owned_) {
      Hold hold(device_);
      CopyOneWord program(flags_, words_, words_);
      hold.on(*late);
      DeviceQueue* const queues[] = {owned_[0].get(), owned_[1].get()};
      program.end_early(device_, queues);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const bool early = program.release_device();
      hold.release();
      while (!program.advance()) std::this_thread::yield();
      CHECK(!early);
    }
  }

 private:
  Device& device_;
  const std::unique_ptr<DeviceQueue> caller_;
  const std::array<std::unique_ptr<DeviceQueue>, 2> owned_;
  HostMemory host_;
  const std::shared_ptr<StreamFlagPool> flags_;
  Word* const words_;
  Word* const given_;
};

}  // namespace fakecuda_test
