// The network of this process, by the library that it stands on: an MPI of MPICH's ABI, of Open MPI's, or of
// that of the MPI 5.0 standard. Each network is a shared library of ours beside the core, and none is linked
// with what it stands on: load_network() opens that for all to see, and then the one of ours.
#pragma once

#include <string>

#include "transport/network.hpp"

namespace mpi_gdr {

// `path`: of the library to use, such as libmpi. For the life of the process; again: without effect. Throws
// System where it cannot be loaded, InvalidUsage where none of ours stands on it. By one thread at a time.
void load_network(const std::string& path);
// Throws InvalidUsage before load_network().
Network& network();
// That of libmpi_gdr_<name>.so: "mpich", "openmpi", "mpiabi"; "" before load_network().
const std::string& network_name();

// What each of these exports. `library`: dlopen's, of what it stands on.
using NetworkFunction = Network* (*)(void* library);
constexpr const char* kNetworkSymbol = "mpi_gdr_network";

}  // namespace mpi_gdr
