// For memory that other ranks, devices or graphs may still use.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace mpi_gdr {

// Never frees `shared`. Thread-safe.
inline void keep_until_exit(std::shared_ptr<const void> shared) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(shared));
}

}  // namespace mpi_gdr
