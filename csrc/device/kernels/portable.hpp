// What lets the kernels of this folder be compiled for any processor, the host's or a device's. The build
// says which by two macros: MPI_GDR_ISA, a name for it, and MPI_GDR_FOLD, the header with its loop
// (fold.hpp).
#pragma once

#include "common/portable.hpp"

// The namespace of all that is compiled for it.
#ifndef MPI_GDR_ISA
#define MPI_GDR_ISA baseline
#endif

#ifndef MPI_GDR_FOLD
#define MPI_GDR_FOLD "device/host/fold.hpp"
#endif
