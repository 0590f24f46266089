// Private to transport/mpi: what runtime.cpp sets up and runtime_info.cpp, finalize.cpp read.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/board.hpp"
#include "bootstrap/pmi_server.hpp"
#include "bootstrap/process_id.hpp"

namespace mpigdr::mpi {

struct RuntimeState {
  MPI_Comm base = MPI_COMM_NULL;
  int rank = -1, size = -1;
  std::vector<int> node_of_rank;
  std::vector<ProcessId> processes;
  std::shared_ptr<Boards> boards;
  PmiServer* pmi = nullptr;  // that started this MPI; null: a launcher did
  std::string bootstrap;
  pid_t pid = 0;  // that initialised MPI: a forked child has another
  bool started_by_us = false;
  bool under_launcher = false;
  std::chrono::milliseconds finalize_timeout{0};
  std::atomic<bool> ready{false};  // release: everything above is set
  std::atomic<bool> failed{false};
};

// Leaked: it outlives atexit handlers.
RuntimeState& state();

bool mpi_is_initialized();
bool mpi_is_finalized();
std::string library_version();  // first line
const char* thread_level_name(int level);

}  // namespace mpigdr::mpi
