#include "cudart/counters.hpp"

#include <mutex>
#include <string_view>
#include <utility>

namespace fakecuda {
namespace {

struct Counted {
  std::mutex mutex;
  std::map<std::string_view, std::uint64_t> calls;  // the names are constants of the program
  Traffic traffic;
};

Counted& counted() {
  static auto& leaked = *new Counted;
  return leaked;
}

}  // namespace

std::map<std::string, std::uint64_t> calls() {
  const std::lock_guard lock(counted().mutex);
  return {counted().calls.begin(), counted().calls.end()};
}

Traffic traffic() {
  const std::lock_guard lock(counted().mutex);
  return counted().traffic;
}

void count_call(const char* name) {
  const std::lock_guard lock(counted().mutex);
  ++counted().calls[name];
}

void settle_traffic() {
  const Traffic own = std::exchange(own_traffic(), {});
  const std::lock_guard lock(counted().mutex);
  for (std::size_t i = 0; i < own.read.size(); ++i) {
    counted().traffic.read[i] += own.read[i];
    counted().traffic.written[i] += own.written[i];
  }
}

}  // namespace fakecuda
