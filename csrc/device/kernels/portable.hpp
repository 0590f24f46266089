// Lets the kernels of this folder be compiled for any processor, the host's or a device's, by two macros of
// the build: MPI_GDR_ISA, its name and namespace, and MPI_GDR_FOLD, the header with its loop (fold.hpp).
#pragma once

#include "common/portable.hpp"

#ifndef MPI_GDR_ISA
#define MPI_GDR_ISA baseline
#endif

#ifndef MPI_GDR_FOLD
#define MPI_GDR_FOLD "device/host/fold.hpp"
#endif
