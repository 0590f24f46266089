// The network of this process: a shared library beside the core for each MPI ABI (MPICH, Open MPI, the MPI
// 5.0 standard), not linked with its MPI, which load_network() opens first.
#pragma once

#include <string>

#include "transport/network.hpp"

namespace mpi_gdr {

// `path`: of the MPI library. Later calls do nothing. One thread at a time. Throws System or InvalidUsage.
void load_network(const std::string& path);
// Throws InvalidUsage before load_network().
Network& network();
// The name in libmpi_gdr_<name>.so: "mpich", "openmpi", "mpiabi"; "" before load_network().
const std::string& network_name();

// Exported by each network library. `library`: dlopen()'s handle of the MPI.
using NetworkFunction = Network* (*)(void* library);
constexpr const char* kNetworkSymbol = "mpi_gdr_network";

}  // namespace mpi_gdr
