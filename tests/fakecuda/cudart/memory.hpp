// The memory of devices, pinned, registered and imported memory, and who may access it.
//
// A device's memory is an unnamed file that other processes open through /proc. Inaccessible pages surround
// every range, no address is reused, and new memory is poisoned: not a NaN, and large enough to dominate a
// sum.
//
// Thread-safe. A violation of CUDA's rules is a fault.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "cudart/counters.hpp"
#include "gpu/kernel.hpp"

namespace fakecuda {

inline constexpr unsigned char kPoison = 0xf7;

struct Range {
  enum class Kind : std::uint8_t { Device, Pinned, Registered, Imported, Seen };
  std::byte* begin;
  std::size_t bytes;  // as requested
  Kind kind;
  int device;                   // owner, or the device it was opened for
  bool everywhere = false;      // pinned: accessible to all devices
  int file = -1;                // of Device and Imported
  int opened = 1;               // of Imported: number of opens
  std::uint64_t inode = 0;      // of Imported: the file's
  std::byte* seen = nullptr;    // of Pinned and Registered: the device's address (Seen), if another
  std::byte* copied = nullptr;  // of Imported: the address for copies (Seen), if another
};

// The contents of a cudaIpcMemHandle_t.
struct IpcHandle {
  std::uint64_t inode, bytes;
  std::int32_t pid, file, device;
};

// For an access by `device`.
Where where(const Range& range, int device);

class Memory : public MemoryRules {
 public:
  static Memory& get();

  // Null: out of memory.
  void* allocate(int device, std::size_t bytes);
  void* allocate_pinned(int device, std::size_t bytes, bool everywhere);
  void free(void* memory, Range::Kind kind);
  // False: part of it is already registered.
  bool register_host(void* memory, std::size_t bytes, int device, bool everywhere);
  void unregister_host(void* memory);

  // Frees all memory of the device and closes what it has opened.
  void forget(int device);

  IpcHandle share(void* memory);
  // Null: the other process has freed it.
  void* open(const IpcHandle& handle, int device);
  void close(void* memory);

  // The range that contains [address, address + bytes), which must not leave it; none: unknown to CUDA.
  std::optional<Range> find(const void* address, std::size_t bytes) const;
  // For an access by the executing device of the calling thread.
  bool check(const void* address, std::size_t bytes, bool write) const override;
  // Belongs to the host or to another device than the executing one.
  bool is_foreign(const void* address) const;
  // The device of an allocation; -1: not an allocation.
  int device_of(const void* memory) const;

 private:
  using Ranges = std::map<const std::byte*, Range>;

  Memory();
  std::byte* reserve(std::size_t bytes);  // with mutex_
  // Of a device's file, with mutex_. Null: there is no room.
  std::byte* map(int file, std::size_t bytes);
  void show_elsewhere(Range& range);      // with mutex_
  void withdraw(Ranges::iterator range);  // with mutex_
  std::optional<Range> find_locked(const std::byte* address, std::size_t bytes) const;
  std::size_t in_use(int device) const;  // with mutex_
  Ranges::iterator expect(void* memory, Range::Kind kind, const char* rule);

  mutable std::mutex mutex_;
  std::byte *begin_, *next_, *end_;  // of all addresses ever used
  Ranges ranges_;
  std::map<const std::byte*, std::size_t> freed_;
  std::atomic<std::uint64_t> generation_{1};  // grows when a range is removed
};

// The device for which the calling thread executes work; -1: none.
int& executing_device();

}  // namespace fakecuda
