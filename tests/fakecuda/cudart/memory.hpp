// Which memory there is, and who may touch it: of devices, pinned, registered, and of other processes.
//
// A device's memory is a file without a name, which other processes find below /proc. Every range has a page
// on either side that nobody may touch, no address is given out twice, and new memory holds poison: no NaN,
// and too large to get lost in a sum.
//
// Thread-safe. What CUDA forbids is a fault.
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
  std::size_t bytes;  // as asked for
  Kind kind;
  int device;                 // that it belongs to, or was opened for
  bool everywhere = false;    // pinned: for all devices
  int file = -1;              // of Device and Imported
  int opened = 1;             // of Imported: how often
  std::uint64_t inode = 0;    // of Imported: the file's
  std::byte* seen = nullptr;  // of Pinned and Registered: where devices see it (Seen), if elsewhere
};

// What is in a cudaIpcMemHandle_t.
struct IpcHandle {
  std::uint64_t inode, bytes;
  std::int32_t pid, file, device;
};

// Of an access by `device`.
Where where(const Range& range, int device);

class Memory : public MemoryRules {
 public:
  static Memory& get();

  // Null: there is none left.
  void* allocate(int device, std::size_t bytes);
  void* allocate_pinned(int device, std::size_t bytes, bool everywhere);
  void free(void* memory, Range::Kind kind);
  // False: some of it is registered already.
  bool register_host(void* memory, std::size_t bytes, int device, bool everywhere);
  void unregister_host(void* memory);

  // Takes back all memory of the device, and closes what it has open.
  void forget(int device);

  IpcHandle share(void* memory);
  // Null: the other process does not have it any more.
  void* open(const IpcHandle& handle, int device);
  void close(void* memory);

  // The range that holds all of [address, address + bytes); what begins in one and ends outside is a fault.
  // None: memory that CUDA was never told of.
  std::optional<Range> find(const void* address, std::size_t bytes) const;
  // An access by the device that the calling thread executes for.
  bool check(const void* address, std::size_t bytes, bool write) const override;
  // Of the host, or of another device than that.
  bool is_foreign(const void* address) const;
  // The device of an allocation; -1: it is none.
  int device_of(const void* memory) const;

 private:
  using Ranges = std::map<const std::byte*, Range>;

  Memory();
  std::byte* reserve(std::size_t bytes);  // with mutex_
  void show_elsewhere(Range& range);      // with mutex_
  void withdraw(Ranges::iterator range);  // with mutex_
  std::optional<Range> find_locked(const std::byte* address, std::size_t bytes) const;
  std::size_t in_use(int device) const;  // with mutex_
  Ranges::iterator expect(void* memory, Range::Kind kind, const char* rule);

  mutable std::mutex mutex_;
  std::byte *begin_, *next_, *end_;  // of all addresses that are ever given out
  Ranges ranges_;
  std::map<const std::byte*, std::size_t> freed_;
  std::atomic<std::uint64_t> generation_{1};  // grows when a range goes
};

// The device that the calling thread executes work for; -1: none.
int& executing_device();

}  // namespace fakecuda
