// Does this MPI take device pointers? Two ranks: mpi_device. Prints a line per size on rank 0. Run in a job
// of its own, because a library that does not take them may crash.
#include <cuda_runtime.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

int main(int argc, char** argv) {
  if (cudaSetDevice(0) != cudaSuccess) return 1;
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const int bytes : {8, 64 << 10, 64 << 20}) {
    std::vector<char> host(static_cast<std::size_t>(bytes)), seen(host.size());
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i * 7 + 1);
    void* device;
    cudaMalloc(&device, host.size());
    if (rank == 0) cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice);
    if (rank == 1) cudaMemset(device, 0, host.size());
    cudaDeviceSynchronize();
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = std::chrono::steady_clock::now();
      if (rank == 0) {
        MPI_Send(device, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(device, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (rank == 1) {
        MPI_Recv(device, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(device, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (took.count() < best) best = took.count();
    }
    cudaMemcpy(seen.data(), device, seen.size(), cudaMemcpyDeviceToHost);
    int wrong = std::memcmp(seen.data(), host.data(), host.size()) != 0, any = 0;
    MPI_Reduce(&wrong, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
      std::printf("%d B %s, %.1f us, %.2f GB/s; ", bytes, any ? "WRONG" : "right", best * 1e6,
                  bytes / best / 1e9);
    cudaFree(device);
  }
  if (rank == 0) std::printf("\n");
  MPI_Finalize();
}
