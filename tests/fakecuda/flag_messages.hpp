// Messages between host and device, announced by flags of a queue: writes before a flag are visible with it.
// Covers every kind of flag.
#pragma once

#include "peer_runs.hpp"

namespace fakecuda_test {

class FlagMessages {
 public:
  explicit FlagMessages(Device& device)
      : device_(device),
        page_(new (std::aligned_alloc(4096, 4096)) Flag[4096 / sizeof(Flag)]()),
        flag_(device.make_flags(1)),
        memory_(device.allocate(8)),
        counts_(static_cast<unsigned char*>(device.allocate(256))),
        hold_(device) {
    device.register_host(page_, 4096);
    queue_ = device.adopt(native_);
    queue_->copy(counts_, page_, 256);
    queue_->count_replay(replays());
    queue_->synchronize();
  }

  void all() {
    to_host([&] { queue_->write_flag(&flag_[0], 1); }, [&] { return flag_[0] == 1; });
    to_host([&] { queue_->write_flag(&page_[kFlag], 1); }, [&] { return page_[kFlag] == 1; });
    to_host([&] { queue_->write_flag(&page_[kFlag], 5, replays()); }, [&] { return page_[kFlag] == kFifth; });
    to_device([&] { queue_->wait_flag(&flag_[0], 1); }, [&] { flag_[0] = 1; });
    to_device([&] { queue_->wait_flag(&page_[kFlag], 1); }, [&] { page_[kFlag] = 1; });
    to_device([&] { queue_->wait_flag(&page_[kFlag], 5, replays()); }, [&] { page_[kFlag] = kFifth; });
    to_device([&] { queue_->wait_flag(&page_[kFlag], 6, replays()); }, [&] { page_[kReleased] = 1; });
  }

 private:
  static constexpr int kData = 0, kFlag = 64, kSeen = 128, kReleased = 192;  // each in its own line
  static constexpr std::uint64_t kFifth = std::uint64_t{1} << 32 | 5;        // of the first replay

  Replays replays() {
    return {reinterpret_cast<Flag*>(counts_), reinterpret_cast<Flag*>(counts_ + 128), &page_[kReleased]};
  }
  void begin() {
    flag_[0] = 0;
    page_[kFlag] = page_[kSeen] = 0;
    page_[kData] = ++value_;
  }

  // From the device to the host.
  void to_host(const std::function<void()>& write, const std::function<bool()>& written) {
    begin();
    queue_->copy(memory_, &page_[kData], 8);
    queue_->copy(&page_[kSeen], memory_, 8);
    write();
    while (!written()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    CHECK(page_[kSeen] == value_);
    queue_->synchronize();
  }

  // From the host to the device, which has read the old value; all work is submitted before.
  void to_device(const std::function<void()>& wait, const std::function<void()>& raise) {
    begin();
    hold_.on(*queue_);
    queue_->copy(memory_, &page_[kData], 8);
    CHECK(cudaEventRecord(event_, native_) == cudaSuccess);
    wait();
    queue_->copy(memory_, &page_[kData], 8);
    queue_->copy(&page_[kSeen], memory_, 8);
    hold_.release();
    while (cudaEventQuery(event_) != cudaSuccess) std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it has read the flag by now
    page_[kData] = ++value_;
    raise();
    queue_->synchronize();
    CHECK(page_[kSeen] == value_);
  }

  Device& device_;
  Flag* const page_;
  const std::shared_ptr<Flag[]> flag_;
  void* const memory_;
  unsigned char* const counts_;
  Hold hold_;
  const cudaStream_t native_ = make_stream();
  const cudaEvent_t event_ = make_event();
  std::unique_ptr<DeviceQueue> queue_;
  std::uint64_t value_ = 0;
};

}  // namespace fakecuda_test
