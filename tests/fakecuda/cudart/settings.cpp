#include "cudart/settings.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string>

#include "gpu/fault.hpp"

namespace fakecuda {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string variable = std::string("FAKECUDA_") + name;
  const char* const text = std::getenv(variable.c_str());
  if (!text) return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0') fault((variable + " is no number").c_str());
  return value;
}

}  // namespace

const Settings& Settings::get() {
  static const Settings settings{.devices = number("DEVICES", 1),
                                 .queues = number("QUEUES", 8),
                                 .depth = number("DEPTH", 1024),
                                 .memory = number("MEMORY_MIB", 4096) << 20,
                                 .peers = number("PEERS", 1),
                                 .stream_words = number("STREAM_WORDS", 1),
                                 .driver = number("DRIVER", CUDART_VERSION),
                                 .delay_us = number("DELAY_US", 0),
                                 .seed = number("SEED", 1)};
  return settings;
}

}  // namespace fakecuda
