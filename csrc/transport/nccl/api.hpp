// The part of NCCL's C interface that this project calls (nccl.h of 2.19 and newer; RCCL's is the same).
// Declared here because the library is one that the framework has loaded: no header of it is needed to build.
#pragma once

#include <climits>
#include <cstddef>

namespace mpi_gdr::nccl {

struct Comm;           // ncclComm
using Stream = void*;  // cudaStream_t
struct UniqueId {
  char bytes[128];
};  // ncclUniqueId

enum Result : int {
  kSuccess = 0,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum Op : int { kSum, kProd, kMax, kMin, kAvg };
enum Type : int {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
};
enum Residence : int { kDevice, kHostImmediate };  // ncclScalarResidence_t

// ncclConfig_t of 2.18: a newer library takes the default for each later field.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// FUNCTION(result, name without "nccl", parameters)
#define MPI_GDR_NCCL_FUNCTIONS(FUNCTION)                                                                    \
  FUNCTION(Result, GetVersion, int*)                                                                        \
  FUNCTION(Result, GetUniqueId, UniqueId*)                                                                  \
  FUNCTION(Result, CommInitRankConfig, Comm**, int ranks, UniqueId, int rank, Config*)                      \
  FUNCTION(Result, CommDestroy, Comm*)                                                                      \
  FUNCTION(Result, CommAbort, Comm*)                                                                        \
  FUNCTION(Result, CommGetAsyncError, Comm*, Result*)                                                       \
  FUNCTION(Result, GroupStart)                                                                              \
  FUNCTION(Result, GroupEnd)                                                                                \
  FUNCTION(Result, AllReduce, const void* input, void* output, std::size_t, Type, Op, Comm*, Stream)        \
  FUNCTION(Result, ReduceScatter, const void* input, void* output, std::size_t received, Type, Op, Comm*,   \
           Stream)                                                                                          \
  FUNCTION(Result, AllGather, const void* input, void* output, std::size_t sent, Type, Comm*, Stream)       \
  FUNCTION(Result, Broadcast, const void* input, void* output, std::size_t, Type, int root, Comm*, Stream)  \
  FUNCTION(Result, Reduce, const void* input, void* output, std::size_t, Type, Op, int root, Comm*, Stream) \
  FUNCTION(Result, Send, const void*, std::size_t, Type, int peer, Comm*, Stream)                           \
  FUNCTION(Result, Recv, void*, std::size_t, Type, int peer, Comm*, Stream)                                 \
  FUNCTION(Result, RedOpCreatePreMulSum, Op*, void* factor, Type, Residence, Comm*)                         \
  FUNCTION(Result, RedOpDestroy, Op, Comm*)                                                                 \
  FUNCTION(const char*, GetErrorString, Result)

}  // namespace mpi_gdr::nccl
