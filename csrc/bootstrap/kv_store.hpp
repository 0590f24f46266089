// The key-value store that ranks meet over before MPI works. torch/ adapts c10d::Store to it.
//
// Threads: one KvStore is used by one thread at a time; another thread takes a clone(), because a call may
// sit on the connection (and its lock) for long. Any call may throw: the server may be gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace mpigdr {

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

}  // namespace mpigdr
