#include "cudart/machine.hpp"

#include <unistd.h>

#include "cudart/memory.hpp"
#include "cudart/settings.hpp"
#include "cudart/stream.hpp"
#include "gpu/fault.hpp"
#include "gpu/weak_memory.hpp"

namespace fakecuda {

Gpu::Gpu(int index, const DeviceSettings& settings)
    : index(index), room(static_cast<unsigned>(Settings::get().multiprocessors)), turns(index) {
  for (std::uint64_t q = 0; q < kEngines * settings.queues; ++q) {
    const std::uint64_t bit = q % settings.queues, engine = q / settings.queues;
    const bool late = bit >= 64 || Settings::get().late >> bit & 1;
    queues.push_back(std::make_unique<HardwareQueue>(index, late ? settings.delay_us : 0, settings.seed + q,
                                                     engine == 0 ? nullptr : &copies[engine]));
  }
  legacy = std::make_shared<Stream>(*this, Stream::Kind::Legacy);
  streams.push_back(legacy);
}

Machine::Machine() : owner_(::getpid()) {
  const Settings& settings = Settings::get();
  if (settings.weak && kOneProcess) fault("not modelled: weak memory with kernels of the host");
  if (settings.weak) weaken_memory();
  Memory::get();  // its rules hold before anything is launched
  for (std::uint64_t device = 0; device < settings.devices; ++device)
    add({settings.queues, settings.delay_us, settings.seed});
}

int Machine::add(const DeviceSettings& settings) {
  const std::lock_guard lock(mutex);
  const int device = devices();
  if (static_cast<std::size_t>(device) == gpus_.size()) fault("too many devices");
  gpus_[static_cast<std::size_t>(device)] = std::make_unique<Gpu>(device, settings);
  devices_.store(device + 1, std::memory_order_release);
  return device;
}

Machine& Machine::get() {
  static auto& leaked = *new Machine;
  return leaked;
}

bool Machine::forked() const { return ::getpid() != owner_; }

Gpu*& current_context() {
  thread_local Gpu* gpu = nullptr;
  return gpu;
}

Gpu& current_gpu() {
  Gpu*& current = current_context();
  if (!current) current = &Machine::get().gpu(0);
  return *current;
}

}  // namespace fakecuda
