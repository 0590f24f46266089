// Memory that is set aside for the text of the error that says that there is none. Thread-safe.
#pragma once

namespace mpi_gdr {

// Sets the reserve aside unless it is there. Without memory for it, nothing happens.
void keep_memory_reserve() noexcept;

// Gives it back to the next allocation; call this when std::bad_alloc has been caught, and before its text
// is made. Once, until keep_memory_reserve() is called again.
void release_memory_reserve() noexcept;

}  // namespace mpi_gdr
