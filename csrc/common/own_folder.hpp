// The folder of the file that contains this code, and of the libraries that are loaded when they are needed.
#pragma once

#include <string>

namespace mpi_gdr {

// With a slash at its end. "" in a program that was found by PATH: the current folder is not searched.
std::string own_folder();

}  // namespace mpi_gdr
