// The network of this process, by the ABI of its MPI: MPICH's, Open MPI's or the MPI 5.0 standard's. Each is
// a shared library beside the core that is not linked with its MPI, which load_network() opens first.
#pragma once

#include <string>

#include "transport/network.hpp"

namespace mpi_gdr {

// `path`: of the library to use, such as libmpi. For the life of the process; again: without effect. Throws
// System or InvalidUsage. By one thread at a time.
void load_network(const std::string& path);
// Throws InvalidUsage before load_network().
Network& network();
// That of libmpi_gdr_<name>.so: "mpich", "openmpi", "mpiabi"; "" before load_network().
const std::string& network_name();

// What each of these exports. `library`: dlopen's, of what it stands on.
using NetworkFunction = Network* (*)(void* library);
constexpr const char* kNetworkSymbol = "mpi_gdr_network";

}  // namespace mpi_gdr
