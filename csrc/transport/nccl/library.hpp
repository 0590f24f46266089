// The NCCL that this process has loaded, if any. Thread-safe.
#pragma once

#include <string>

#include "transport/nccl/api.hpp"

namespace mpi_gdr::nccl {

struct Library {
#define FUNCTION(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
  int version = 0;  // 22705: 2.27.5
};

// Null: `why` says what is missing. Never loads a library: a second NCCL would not share its state with
// torch's.
const Library* find_library(std::string& why);
std::string version_text(int version);  // "2.27.5"

}  // namespace mpi_gdr::nccl
