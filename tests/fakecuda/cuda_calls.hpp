// Short forms of CUDA calls for tests of the software CUDA. Some of these tests end their process.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "end_of_process.hpp"
#include "processes.hpp"
#include "test.hpp"

extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, dim3*,
                                       dim3*, int*);

namespace fakecuda_test {

inline void run(const std::function<void()>& body) {
  run_processes<int>(1, std::chrono::seconds(50), [&](int, Common<int>&) { body(); });
}

// A test in a process of its own, since CUDA's state persists.
#define CUDA_TEST(name)                              \
  static void body_of_##name();                      \
  TEST(name) { fakecuda_test::run(body_of_##name); } \
  static void body_of_##name()

inline void ok(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorName(status));
}
inline void ok(CUresult status) {
  if (status != CUDA_SUCCESS) throw std::runtime_error("driver: " + std::to_string(status));
}

// Zeroed words of pinned memory.
inline std::atomic<std::uint64_t>* make_words() {
  void* memory = nullptr;
  ok(cudaHostAlloc(&memory, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(memory, 0, 4096);
  return static_cast<std::atomic<std::uint64_t>*>(memory);
}
inline CUdeviceptr at(std::atomic<std::uint64_t>& word) { return reinterpret_cast<CUdeviceptr>(&word); }
inline void write(cudaStream_t stream, std::atomic<std::uint64_t>& word, std::uint64_t value) {
  ok(cuInit(0));
  ok(cuStreamWriteValue64(stream, at(word), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}
inline void wait(cudaStream_t stream, std::atomic<std::uint64_t>& word, std::uint64_t value) {
  ok(cuInit(0));
  ok(cuStreamWaitValue64(stream, at(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}
inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
inline std::pair<std::atomic<std::uint64_t>*, cudaStream_t> make_words_and_stream() {
  return {make_words(), make_stream()};
}
inline cudaEvent_t make_event() {
  cudaEvent_t event;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
inline unsigned char* allocate(std::size_t bytes) {
  void* memory = nullptr;
  ok(cudaMalloc(&memory, bytes));
  return static_cast<unsigned char*>(memory);
}

// Long enough for a missing wait to have an effect.
inline void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Kernels of flag_kernels.cu, registered as nvcc's objects do.
#define FLAG_KERNEL(name) "_ZN7mpi_gdr3gpu5flags" name
inline const void* register_kernel(char& function, const char* name) {
  __cudaRegisterFunction(nullptr, &function, &function, name, -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  return &function;
}
inline const void* write_kernel() {
  static char function;
  return register_kernel(function, FLAG_KERNEL("12write_kernelEPVmmPKmS5_"));
}
inline const void* wait_kernel() {
  static char function;
  return register_kernel(function, FLAG_KERNEL("11wait_kernelEPVKmmPKmPmS3_"));
}
inline const void* loaded(const void* kernel) {
  cudaFuncAttributes attributes;
  ok(cudaFuncGetAttributes(&attributes, kernel));
  return kernel;
}
inline const void* loaded_write_kernel() { return loaded(write_kernel()); }
// Launches wait_kernel(), which waits for `value`, or write_kernel(), which writes it.
inline void launch_flag(const void* kernel, void* word, std::uint64_t value, cudaStream_t stream) {
  void* none = nullptr;  // no Replays
  void* arguments[] = {&word, &value, &none, &none, &none};
  ok(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream));
}

inline cudaGraphExec_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ok(cudaStreamEndCapture(stream, &graph));
  ok(cudaGraphInstantiate(&exec, graph, 0));
  ok(cudaGraphDestroy(graph));
  return exec;
}

// Expects abort() with the rule's name.
inline void expect_fault(const char* rule, const std::function<void()>& body) {
  const unit::End end = unit::end_of(body);
  if (end.signal == SIGABRT && end.text.find(rule) != std::string::npos) return;
  throw std::runtime_error(std::string("expected the fault '") + rule + "', but it said '" + end.text +
                           "', signal " + std::to_string(end.signal));
}

}  // namespace fakecuda_test
