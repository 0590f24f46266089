// Counts of this process's API calls and of its devices' traffic, for tests and gpu_counts.cpp. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fakecuda {

// Calls by the name of the runtime's or driver's function.
__attribute__((visibility("default"))) std::map<std::string, std::uint64_t> calls();

// Calls among them that put work on a stream; that wait, or may wait, for the whole device.
__attribute__((visibility("default"))) std::uint64_t calls_with_work();
__attribute__((visibility("default"))) std::uint64_t device_wide_waits();
bool puts_work_on_a_stream(std::string_view call);

// The target of an access, relative to the device that makes it.
enum class Where : std::uint8_t { Own, Peer, Host };
// Bytes that kernels and copies have read and written, by Where. Complete when the device is idle.
struct Traffic {
  std::array<std::uint64_t, 3> read{}, written{};
};
__attribute__((visibility("default"))) Traffic traffic();

void count_call(const char* name);
// Traffic of the item that the calling thread executes. settle_traffic() adds it to traffic().
inline Traffic& own_traffic() {
  thread_local Traffic traffic;
  return traffic;
}
inline void count_access(Where where, std::size_t bytes, bool write) {
  Traffic& own = own_traffic();
  (write ? own.written : own.read)[static_cast<std::size_t>(where)] += bytes;
}
void settle_traffic();

}  // namespace fakecuda
