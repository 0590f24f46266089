// What the software GPU is like, from the environment: FAKECUDA_DEVICES and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fakecuda {

// One process, whose devices stand for processes of their own: each opens the handles of the others, finds
// their memory at other addresses, and its captures are no concern of theirs. Devices are made when a test
// asks for them (host_work.hpp).
#ifdef FAKECUDA_ONE_PROCESS
inline constexpr bool kOneProcess = true;
#else
inline constexpr bool kOneProcess = false;
#endif

// As with HMM: devices reach all memory of the host.
inline constexpr bool kPageable = kOneProcess;
// Bytes of a device, for each process; bytes of addresses that are reserved for all devices of a process.
inline constexpr std::size_t kMemory = std::size_t{kOneProcess ? 1024 : 4} << 30,
                             kAddresses = std::size_t{kOneProcess ? 128 : 1024} << 30;

struct Settings {
  std::uint64_t devices;  // DEVICES, of the machine: all its processes see the same ones
  // QUEUES, hardware queues of a device: streams are dealt round robin. As many as
  // CUDA_DEVICE_MAX_CONNECTIONS asks for, or else 8.
  std::uint64_t queues;
  std::uint64_t depth;         // DEPTH, items in a hardware queue: who submits more waits
  bool weak;                   // MEMORY=weak: its order is (gpu/weak_memory.hpp); strong
  std::uint64_t deadline_ms;   // DEADLINE_MS, who waits longer in a stream is a fault. 0: nobody is
  std::uint64_t peers;         // PEERS, 0: devices cannot reach each other's memory
  std::uint64_t stream_words;  // STREAM_WORDS, 0: the driver has no stream memory operations
  std::uint64_t flush;         // FLUSH, 1: they can flush what came over the network before
  std::uint64_t ordering;      // ORDERING of what comes over the network: 100, for the device itself
  std::uint64_t capability;    // CAPABILITY, the major one that the driver reports
  std::uint64_t c2c;           // C2C, 1: the device uses the host's page tables, as in Grace Hopper
  std::uint64_t elsewhere;  // ELSEWHERE, 1: the device sees pinned and registered memory at other addresses
  // WAITS, 1: allocations and loading wait for the device, and shut all others out; so does who finds a queue
  // full
  std::uint64_t waits;
  std::uint64_t driver;       // DRIVER, its version: 13000
  std::uint64_t other_bytes;  // OTHER_BYTES, 1: memory of other processes reads as something else
  std::uint64_t
      multiprocessors;       // MULTIPROCESSORS, of a device: what is resident there leaves others no room
  std::uint64_t slice_us;    // SLICE_US, so long kernels of one process have the device to themselves, as
                             // without MPS. 0: those of all processes run together
  std::uint64_t delay_us;    // DELAY_US, each item starts after a random delay of up to so many
  std::uint64_t late;        // LATE, of which hardware queues: a bit each
  std::uint64_t seed;        // SEED
  std::string fails;         // FAILS, a function of the API of which each call fails,
  std::uint64_t fails_with;  // FAILS_WITH this error
  std::uint64_t deferred;    // DEFERRED, 0: torch's operators wait for the stream and run on the host

  // Read once. A value that is no number is a fault.
  __attribute__((visibility("default"))) static const Settings& get();
};

}  // namespace fakecuda
