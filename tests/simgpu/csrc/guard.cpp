// torch's device guard for the simulated accelerators: devices, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>
#include <mutex>

#include "device_memory.hpp"
#include "runtime.hpp"

namespace simgpu {

namespace {

using Clock = std::chrono::steady_clock;

// Stands for its latest record only: who waits for it takes the mark as it is now.
struct Event {
  std::mutex mutex;
  mpigdr::SimMark mark;  // reached, before the first record
  std::shared_ptr<Clock::time_point> at;

  mpigdr::SimMark now() {
    std::lock_guard lock(mutex);
    return mark;
  }
};

Event& event_of(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }

  c10::Device getDevice() const override { return c10::Device(kDevice, current_device()); }

  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) set_current_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < deviceCount()) set_current_device(device.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return in_bad_fork() ? 0 : static_cast<c10::DeviceIndex>(settings().devices);
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }

  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream(device, gpu(resolve(device.index())).next_stream());
  }

  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }

  // Not marked as overriding: the oldest torch that is served has no such function.
  void* getStreamNativeHandle(const c10::Stream stream) const {
    return static_cast<mpigdr::DeviceQueue*>(&queue(stream));
  }

  bool queryStream(const c10::Stream& stream) const override { return queue(stream).idle(); }

  void synchronizeStream(const c10::Stream& stream) const override { queue(stream).synchronize(); }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (started()) gpu(resolve(index)).device().synchronize_so_far();
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    auto at = std::make_shared<Clock::time_point>();
    Event& known = event_of(*event);
    std::lock_guard lock(known.mutex);
    known.at = at;
    known.mark = queue(stream).mark(std::move(at));
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event) queue(stream).wait(event_of(event).now());
  }

  bool queryEvent(void* event) const override { return !event || event_of(event).now().reached(); }

  void synchronizeEvent(void* event) const override {
    if (event) event_of(event).now().synchronize();
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first && second && queryEvent(first) && queryEvent(second),
                "both events must be recorded and over");
    return std::chrono::duration<double, std::milli>(*event_of(second).at - *event_of(first).at).count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    device_memory().recordStream(memory, stream);
  }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, resolve(device.index())), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

}  // namespace simgpu
