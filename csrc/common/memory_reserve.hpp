// Memory reserved for reporting that memory has run out. Thread-safe.
#pragma once

namespace mpi_gdr {

// Does nothing if the reserve exists or there is no memory for it.
void keep_memory_reserve() noexcept;

// Call after catching std::bad_alloc, before building its message. Works once per keep_memory_reserve().
void release_memory_reserve() noexcept;

}  // namespace mpi_gdr
