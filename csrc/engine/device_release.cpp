#include "engine/device_release.hpp"

#include <chrono>
#include <exception>
#include <thread>

#include "common/quiet_thread.hpp"

namespace mpigdr {

void let_the_device_go_on(const OperationPtr& operation) noexcept {
  if (operation->release_device()) return;
  try {
    quiet_thread("mpigdr-release", [operation] {
      const auto patience = Clock::now() + std::chrono::minutes(10);
      while (!operation->release_device() && Clock::now() < patience)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }).detach();
  } catch (const std::exception&) {
    // No thread, no memory: what has been set once is all that can be done.
  }
}

}  // namespace mpigdr
