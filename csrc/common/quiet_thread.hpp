// Threads of the library. They take no signals: handlers belong to the application's threads.
#pragma once

#include <functional>
#include <thread>

namespace mpi_gdr {

// `name`: at most 15 characters. Throws std::system_error if no thread can be created. Thread-safe.
std::thread quiet_thread(const char* name, std::function<void()> body);

}  // namespace mpi_gdr
