// What lets the kernels of this folder be compiled for any processor, the host's or a device's. The build
// says which by two macros: MPIGDR_ISA, a name for it, and MPIGDR_FOLD, the header with its loop (fold.hpp).
#pragma once

// The namespace of all that is compiled for it.
#ifndef MPIGDR_ISA
#define MPIGDR_ISA baseline
#endif

#ifndef MPIGDR_FOLD
#define MPIGDR_FOLD "device/host/fold.hpp"
#endif

// Before functions that a device's kernels call.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MPIGDR_PORTABLE __host__ __device__
#else
#define MPIGDR_PORTABLE
#endif
