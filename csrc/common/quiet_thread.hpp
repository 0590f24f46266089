// Threads of the library: they take no signals, since handlers belong to the threads of the application.
#pragma once

#include <functional>
#include <thread>

namespace mpi_gdr {

// Starts `body` on a thread that blocks all signals from its first instruction on, shown by ps and gdb as
// `name` (at most 15 characters). Throws std::system_error if there is no thread to be had. Thread-safe.
std::thread quiet_thread(const char* name, std::function<void()> body);

}  // namespace mpi_gdr
