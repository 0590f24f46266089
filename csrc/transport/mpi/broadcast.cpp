#include "transport/mpi/broadcast.hpp"

#include <mpi.h>

#include <climits>

#include "bootstrap/watchdog.hpp"
#include "common/error.hpp"
#include "transport/mpi/mpi_check.hpp"
#include "transport/mpi/state.hpp"

namespace mpigdr::mpi {

void broadcast(std::string& text, int root, std::chrono::milliseconds timeout) {
  MPI_Comm comm = base_communicator();
  if (root < 0 || root >= size())
    fail(ErrorCode::InvalidUsage, "broadcast_bytes: root=", root, " is not a rank: expected 0..", size() - 1);
  if (text.size() > INT_MAX)
    fail(ErrorCode::InvalidUsage, "broadcast_bytes: ", text.size(), " bytes, expected at most ", INT_MAX);
  Watchdog guard("a broadcast of the set-up", std::chrono::steady_clock::now() + timeout, rank());
  int length = static_cast<int>(text.size());
  check(MPI_Bcast(&length, 1, MPI_INT, root, comm), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(text.data(), length, MPI_BYTE, root, comm), "MPI_Bcast");
}

}  // namespace mpigdr::mpi
