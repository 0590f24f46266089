// For functions that device kernels also call.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define MPI_GDR_PORTABLE __host__ __device__
#else
#define MPI_GDR_PORTABLE
#endif
