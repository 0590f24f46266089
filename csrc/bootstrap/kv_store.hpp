// The key-value store that ranks meet over before MPI works. torch/ adapts c10d::Store to it.
//
// Thread-safe; calls on one connection follow each other, so that a call that hangs keeps the others waiting:
// a thread that must not wait takes a clone(). A connection is not free, though: the server may look up each
// one's name, and answers no other meanwhile. Any call may throw: the server may be gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace mpi_gdr {

class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Nothing if the key is not there yet. Never waits for it.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Adds to a counter that starts at 0, atomically; the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  virtual bool check(const std::string& key) = 0;
  // A connection of its own to the same store.
  virtual std::unique_ptr<KvStore> clone() = 0;
};

}  // namespace mpi_gdr
