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

// Created by the first record(), on the device of its stream.
struct Event {
  explicit Event(c10::DeviceIndex device) : device(device) {
    const DeviceScope scope(device);
    check(cudaEventCreateWithFlags(&native, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(native)); }

  const c10::DeviceIndex device;
  cudaEvent_t native = nullptr;
  std::mutex mutex;
  bool captured = false;                  // by its latest record
  std::shared_ptr<Clock::time_point> at;  // null: without timing
};

Event& event_of(void* event) { return *static_cast<Event*>(event); }

void expect_not_captured(void* event, const char* call) {
  Event& known = event_of(event);
  const std::lock_guard lock(known.mutex);
  TORCH_CHECK(!known.captured, call, " of an event that was captured");
}

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

  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

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

  // Not marked as overriding: the oldest supported torch has no such function.
  void* getStreamNativeHandle(const c10::Stream stream) const { return queue(stream).native(); }

  bool queryStream(const c10::Stream& stream) const override { return queue(stream).idle(); }

  void synchronizeStream(const c10::Stream& stream) const override { queue(stream).synchronize(); }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (started()) gpu(resolve(index)).synchronize();
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    if (!*event) *event = new Event(stream.device_index());
    Event& known = event_of(*event);
    TORCH_CHECK(known.device == stream.device_index(), "an event is recorded on another device than before");
    const Queue where = queue(stream);
    const std::lock_guard lock(known.mutex);
    known.captured = where.capturing();
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      known.at = std::make_shared<Clock::time_point>();
      where.slip_in([at = known.at] { *at = Clock::now(); });
    }
    const DeviceScope scope(stream.device_index());
    check(cudaEventRecord(known.native, where.native()), "cudaEventRecord");
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    const DeviceScope scope(stream.device_index());
    check(cudaStreamWaitEvent(queue(stream).native(), event_of(event).native, 0), "cudaStreamWaitEvent");
  }

  bool queryEvent(void* event) const override {
    if (!event) return true;
    expect_not_captured(event, "query");
    const BesideCapture beside;
    return is_over(cudaEventQuery(event_of(event).native), "cudaEventQuery");
  }

  void synchronizeEvent(void* event) const override {
    if (!event) return;
    expect_not_captured(event, "synchronize");
    check(cudaEventSynchronize(event_of(event).native), "cudaEventSynchronize");
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first && second && queryEvent(first) && queryEvent(second) && event_of(first).at &&
                    event_of(second).at,
                "both events must take the time, be recorded and over");
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
