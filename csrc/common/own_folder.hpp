// The folder of the file that contains this code, and of the libraries that it loads on demand.
#pragma once

#include <string>

namespace mpi_gdr {

// With a trailing slash; "" in a program found by PATH: the current folder is not searched.
std::string own_folder();

}  // namespace mpi_gdr
