#include "cudart/settings.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>

#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

std::string text(const char* name) {
  const char* const given = std::getenv((std::string("FAKECUDA_") + name).c_str());
  return given ? given : "";
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string given = text(name);
  if (given.empty()) return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(given.c_str(), &end, 10);
  if (*end != '\0') fault((std::string("FAKECUDA_") + name + " is no number").c_str());
  return value;
}

bool weak_memory_wanted() {
  const std::string given = text("MEMORY");
  if (!given.empty() && given != "weak" && given != "strong") fault("FAKECUDA_MEMORY is not weak or strong");
  return given == "weak";
}

std::uint64_t connections() {
  const char* const given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int asked = given ? std::atoi(given) : 8;
  return asked < 1 || asked > 32 ? 8 : static_cast<std::uint64_t>(asked);
}

}  // namespace

const Settings& Settings::get() {
  static const Settings settings{.devices = number("DEVICES", kOneProcess ? 0 : 1),
                                 .bytes = number("BYTES", std::uint64_t{kOneProcess ? 1024 : 4} << 30),
                                 .queues = number("QUEUES", connections()),
                                 .depth = number("DEPTH", 1024),
                                 .weak = weak_memory_wanted(),
                                 .deadline_ms = number("DEADLINE_MS", kOneProcess ? 20000 : 0),
                                 .peers = number("PEERS", 1),
                                 .stream_words = number("STREAM_WORDS", 1),
                                 .flush = number("FLUSH", kOneProcess),
                                 .ordering = number("ORDERING", 0),
                                 .capability = number("CAPABILITY", 9),
                                 .c2c = number("C2C", 0),
                                 .elsewhere = number("ELSEWHERE", 0),
                                 .waits = number("WAITS", kOneProcess),
                                 .driver = number("DRIVER", CUDART_VERSION),
                                 .other_bytes = number("OTHER_BYTES", 0),
                                 .multiprocessors = number("MULTIPROCESSORS", 4),
                                 .slice_us = number("SLICE_US", 0),
                                 .delay_us = number("DELAY_US", 0),
                                 .late = number("LATE", ~std::uint64_t{0}),
                                 .seed = number("SEED", 1),
                                 .fails = text("FAILS"),
                                 .fails_at = number("FAILS_AT", 0),
                                 .fails_with = number("FAILS_WITH", cudaErrorUnknown),
                                 .deferred = number("DEFERRED", 1)};
  return settings;
}

}  // namespace fakecuda
