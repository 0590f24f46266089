// Ranks in processes, with communicators of the software NCCL (nccl/).
#pragma once

#include <memory>
#include <vector>

#include "cuda_calls.hpp"
#include "nccl/arithmetic.hpp"

#define FUNCTION(result, name, ...) extern "C" result nccl##name(__VA_ARGS__);
namespace mpi_gdr::nccl {
MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
}
#undef FUNCTION
extern "C" std::uint64_t fakenccl_count(const char* name);

namespace fakecuda_test {

using namespace mpi_gdr::nccl;
using Bytes = std::vector<std::byte>;

inline void ok(Result result) {
  if (result != kSuccess) throw std::runtime_error("NCCL: " + std::to_string(result));
}
inline Result error_of(Comm* comm) {
  Result error;
  ok(ncclCommGetAsyncError(comm, &error));
  return error;
}
inline void finish(Comm* comm) {
  while (error_of(comm) == kInProgress) std::this_thread::yield();
  ok(error_of(comm));
}

// Numbers of 1 to 5, which depend on the rank. Their sums and products are exact in every type.
inline Bytes numbers(Type type, int rank, std::size_t count) {
  Bytes bytes(count * fakenccl::size_of(type));
  fakenccl::with_codec(type, [&](auto codec) {
    using E = fakenccl::Elements<decltype(codec)>;
    for (std::size_t i = 0; i < count; ++i)
      E::store(&bytes[i * sizeof(typename E::Stored)],
               static_cast<typename E::Folded>((i * 3 + static_cast<std::size_t>(rank) * 2) % 5 + 1));
  });
  return bytes;
}
inline std::vector<double> values(Type type, const std::byte* bytes, std::size_t count) {
  std::vector<double> all(count);
  fakenccl::with_codec(type, [&](auto codec) {
    using E = fakenccl::Elements<decltype(codec)>;
    for (std::size_t i = 0; i < count; ++i)
      all[i] = static_cast<double>(E::load(bytes + i * sizeof(typename E::Stored)));
  });
  return all;
}
using PlainDouble = mpi_gdr::kernels::MPI_GDR_ISA::PlainCodec<double>;
// As if all had been reduced in one place.
inline std::vector<double> reduced(Type type, int op, int ranks, std::size_t count) {
  std::vector<double> all = values(type, numbers(type, 0, count).data(), count);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto more = values(type, numbers(type, rank, count).data(), count);
    for (std::size_t i = 0; i < count; ++i)
      all[i] = fakenccl::Elements<PlainDouble>::combine(op, all[i], more[i]);
  }
  const bool floats = type >= kFloat16;
  for (double& value : all)
    if (op == kAvg) value = floats ? value / ranks : static_cast<int>(value) / ranks;
  return all;
}

struct Ids {
  UniqueId ids[2];
};

// A rank, on the device of the same number.
class NcclRank {
 public:
  NcclRank(int rank, int size, Common<Ids>& common) : rank(rank), size(size), common(common) {
    ::setenv("FAKECUDA_DEVICES", std::to_string(size).c_str(), 1);
    ok(cudaSetDevice(rank));
    stream = make_stream();
  }
  // All ranks must call it. `which`: one of the two unique ids.
  Comm* start(bool blocking = true, int which = 0) {
    if (rank == 0) ok(ncclGetUniqueId(&common.data.ids[which]));
    common.meet(size);
    Config config;
    config.blocking = blocking;
    Comm* comm = nullptr;
    const Result result = ncclCommInitRankConfig(&comm, size, common.data.ids[which], rank, &config);
    CHECK(result == (blocking ? kSuccess : kInProgress));
    finish(comm);
    return comm;
  }
  std::byte* put(const Bytes& bytes, std::size_t at = 0, std::size_t all = 0) {
    auto* const memory =
        reinterpret_cast<std::byte*>(allocate(std::max({all, at + bytes.size(), std::size_t{1}})));
    std::memcpy(memory + at, bytes.data(), bytes.size());
    return memory;
  }
  void synchronize() { ok(cudaStreamSynchronize(stream)); }
  bool idle() { return cudaStreamQuery(stream) == cudaSuccess; }

  const int rank, size;
  Common<Ids>& common;
  cudaStream_t stream;
};

inline void run_ranks(int size, const std::function<void(NcclRank&)>& body) {
  run_processes<Ids>(size, std::chrono::seconds(60), [&](int rank, Common<Ids>& common) {
    NcclRank self(rank, size, common);
    body(self);
  });
}

}  // namespace fakecuda_test
