// The store over which ranks meet before MPI runs. Thread-safe, but calls on one connection are serialised: a
// thread that must not block uses a clone(). A connection costs the server a name lookup. Calls may throw.
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
  // Nothing if the key is not set. Does not wait for it.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Adds to a counter that starts at 0, atomically; returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  virtual bool check(const std::string& key) = 0;
  virtual std::unique_ptr<KvStore> clone() = 0;
};

}  // namespace mpi_gdr
