// Settings of the software GPU, from environment variables such as FAKECUDA_DEVICES.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fakecuda {

// One process whose devices act as processes of their own: each opens the others' handles, sees their memory
// at other addresses, and captures alone. Tests add the devices (host_work.hpp).
#ifdef FAKECUDA_ONE_PROCESS
inline constexpr bool kOneProcess = true;
#else
inline constexpr bool kOneProcess = false;
#endif

// Like HMM: devices can access all host memory.
inline constexpr bool kPageable = kOneProcess;
// Addresses reserved for all devices of a process, in bytes.
inline constexpr std::size_t kAddresses = std::size_t{kOneProcess ? 128 : 1024} << 30;

struct Settings {
  std::uint64_t devices;  // DEVICES, of the machine: the same for all its processes
  std::uint64_t bytes;    // BYTES of a device, for each process
  // QUEUES, hardware queues of a device, used round robin. Default: CUDA_DEVICE_MAX_CONNECTIONS, or 8.
  std::uint64_t queues;
  std::uint64_t depth;         // DEPTH, items in a hardware queue: a submission to a full one waits
  bool weak;                   // MEMORY=weak or strong: its order (gpu/weak_memory.hpp)
  std::uint64_t deadline_ms;   // DEADLINE_MS, a longer wait in a stream is a fault. 0: none
  std::uint64_t peers;         // PEERS, 0: devices cannot access each other's memory
  std::uint64_t stream_words;  // STREAM_WORDS, 0: no stream memory operations
  std::uint64_t flush;         // FLUSH, 1: they can flush earlier writes from the network
  std::uint64_t ordering;      // ORDERING of writes from the network: 0, 100 (owner) or 200 (all devices)
  std::uint64_t capability;    // CAPABILITY, the major version
  std::uint64_t c2c;           // C2C, 1: the device uses the host's page tables, like Grace Hopper
  std::uint64_t elsewhere;     // ELSEWHERE, 1: devices see pinned and registered memory at other addresses
  // WAITS, 1: allocation, loading, and submission to a full queue wait for the device and block other calls
  std::uint64_t waits;
  std::uint64_t driver;  // DRIVER, its version, like 13000
  // OTHER_BYTES, opened memory of other processes has wrong values, 1: for all, 2: for all but copies
  std::uint64_t other_bytes;
  std::uint64_t multiprocessors;  // MULTIPROCESSORS, of a device: resident blocks fill them
  std::uint64_t slice_us;         // SLICE_US, a process's turn without MPS. 0: all kernels run together
  std::uint64_t delay_us;         // DELAY_US, most random delay before each item
  std::uint64_t late;             // LATE, the hardware queues that delay: a bit each
  std::uint64_t seed;             // SEED
  std::string fails;              // FAILS, an API function whose calls fail
  std::uint64_t fails_at;         // FAILS_AT, only its call of this number, from 1; 0: all
  std::uint64_t fails_with;       // FAILS_WITH, with this error
  std::uint64_t deferred;         // DEFERRED, 0: torch's operators wait for the stream and run on the host

  // Read once. An invalid value is a fault.
  __attribute__((visibility("default"))) static const Settings& get();
};

}  // namespace fakecuda
