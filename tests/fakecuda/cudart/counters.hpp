// What this process has called, and what its devices have moved, since it began. For tests and
// tests/fakecuda/gpu_counts.cpp.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fakecuda {

// How often each function of the runtime and of the driver, by its name.
__attribute__((visibility("default"))) std::map<std::string, std::uint64_t> calls();

// Of these: calls that put work on a stream; that wait for the whole device, or may.
__attribute__((visibility("default"))) std::uint64_t calls_with_work();
__attribute__((visibility("default"))) std::uint64_t device_wide_waits();
bool puts_work_on_a_stream(std::string_view call);

// Where an access goes, as seen by the device that makes it.
enum class Where : std::uint8_t { Own, Peer, Host };
// Bytes that kernels and copies have read and written, by Where. Complete when the device rests.
struct Traffic {
  std::array<std::uint64_t, 3> read{}, written{};
};
__attribute__((visibility("default"))) Traffic traffic();

void count_call(const char* name);
// Of the calling thread, which executes an item of a queue: found by traffic() after settle_traffic().
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
