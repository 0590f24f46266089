// How streams wait for flags in pinned host memory, one case per run: stream_flags CASE. Prints one line. A
// hang is a result, too: tools/gpu_probe.sh sets a time limit.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Word = unsigned long long;
using StreamOp = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
StreamOp stream_wait, stream_write;

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::printf("error: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}
#define CUDA(call) check(call, #call)

void check(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::printf("error: %s: CUresult %d\n", what, static_cast<int>(code));
  std::exit(1);
}

// Looks the functions up in the driver at run time, as the product does: the driver is not linked.
void load_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) {
    std::printf("error: %s\n", dlerror());
    std::exit(1);
  }
  stream_wait = reinterpret_cast<StreamOp>(dlsym(driver, "cuStreamWaitValue64_v2"));
  stream_write = reinterpret_cast<StreamOp>(dlsym(driver, "cuStreamWriteValue64_v2"));
  if (!stream_wait || !stream_write) {
    std::printf("error: no cuStreamWaitValue64_v2 in the driver\n");
    std::exit(1);
  }
}

__global__ void wait_kernel(volatile Word* flag, Word at_least) {
  while (static_cast<long long>(*flag - at_least) < 0) {
  }
  __threadfence_system();
}
__global__ void write_kernel(volatile Word* flag, Word value) {
  __threadfence_system();
  *flag = value;
}
__global__ void add_kernel(int* counter) { atomicAdd(counter, 1); }
__global__ void never_launched_before(int* counter) { atomicAdd(counter, 2); }

struct Flags {
  std::atomic<Word>* host;
  Word* device;
  explicit Flags(int count) {
    void* memory;
    CUDA(cudaHostAlloc(&memory, sizeof(Word) * static_cast<std::size_t>(count), cudaHostAllocMapped));
    std::memset(memory, 0, sizeof(Word) * static_cast<std::size_t>(count));
    host = static_cast<std::atomic<Word>*>(memory);
    void* seen;
    CUDA(cudaHostGetDevicePointer(&seen, memory, 0));
    device = static_cast<Word*>(seen);
  }
};

cudaStream_t make_stream() {
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
CUdeviceptr address(const Word* flag) { return reinterpret_cast<CUdeviceptr>(flag); }
void wait_on(cudaStream_t s, const Word* flag, Word value) {
  check(stream_wait(s, address(flag), value, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue64");
}
void write_to(cudaStream_t s, const Word* flag, Word value) {
  check(stream_write(s, address(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue64");
}
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Host raises a flag, the stream waits for it and raises another one: microseconds there and back.
void round_trip(bool kernels) {
  Flags flags(2);
  cudaStream_t stream = make_stream();
  std::vector<double> times;
  for (Word i = 1; i <= 1000; ++i) {
    if (kernels) {
      wait_kernel<<<1, 1, 0, stream>>>(flags.device, i);
      write_kernel<<<1, 1, 0, stream>>>(flags.device + 1, i);
    } else {
      wait_on(stream, flags.device, i);
      write_to(stream, flags.device + 1, i);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const auto begin = Clock::now();
    flags.host[0].store(i, std::memory_order_release);
    while (flags.host[1].load(std::memory_order_acquire) < i) {
    }
    times.push_back(ms_since(begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  std::printf("median %.1f us, 90th percentile %.1f us\n", times[500], times[900]);
}

// A stream waits for a flag that is raised a second later; meanwhile `body` runs on another thread.
// Reports whether `body` ended before the flag was raised.
template <typename Body>
void beside_a_wait(const char* what, Body body, cudaStream_t waiting = nullptr) {
  Flags flags(1);
  int* counter;
  CUDA(cudaMalloc(&counter, sizeof(int)));
  if (!waiting) waiting = make_stream();
  cudaStream_t other = make_stream();
  add_kernel<<<1, 1, 0, other>>>(counter);
  CUDA(cudaStreamSynchronize(other));
  wait_on(waiting, flags.device, 1);
  add_kernel<<<1, 1, 0, waiting>>>(counter);
  std::atomic<bool> ended{false};
  const auto begin = Clock::now();
  std::thread worker([&] {
    body(other, counter);
    ended.store(true);
  });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const bool before = ended.load();
  flags.host[0].store(1, std::memory_order_release);
  worker.join();
  CUDA(cudaStreamSynchronize(waiting));
  std::printf("%s %s the flag was raised; all done after %.0f ms\n", what,
              before ? "ended before" : "ended only after", ms_since(begin));
}

void graph() {
  Flags flags(2);
  cudaStream_t stream = make_stream();
  int* counter;
  CUDA(cudaMalloc(&counter, sizeof(int)));
  CUDA(cudaMemset(counter, 0, sizeof(int)));
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const CUresult captured = stream_wait(stream, address(flags.device), 1, CU_STREAM_WAIT_VALUE_GEQ);
  add_kernel<<<1, 1, 0, stream>>>(counter);
  if (captured == CUDA_SUCCESS) write_to(stream, flags.device + 1, 1);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (captured != CUDA_SUCCESS || ended != cudaSuccess) {
    std::printf("not captured: CUresult %d, end of capture: %s\n", static_cast<int>(captured),
                cudaGetErrorString(ended));
    return;
  }
  cudaGraphExec_t executable;
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  int waited = 0;
  for (int i = 0; i < 3; ++i) {
    flags.host[0].store(0);
    flags.host[1].store(0);
    CUDA(cudaGraphLaunch(executable, stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    waited += flags.host[1].load() == 0;
    flags.host[0].store(1, std::memory_order_release);
    CUDA(cudaStreamSynchronize(stream));
  }
  int count;
  CUDA(cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDefault));
  std::printf("captured; %d of 3 replays waited for the flag, %d kernels ran\n", waited, count);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  load_driver();
  CUDA(cudaFree(nullptr));
  if (which == "round-trip") {
    round_trip(false);
  } else if (which == "round-trip-kernels") {
    round_trip(true);
  } else if (which == "malloc-free") {
    beside_a_wait("100 times cudaMalloc and cudaFree", [](cudaStream_t, int*) {
      for (int i = 0; i < 100; ++i) {
        void* memory;
        CUDA(cudaMalloc(&memory, 1 << 20));
        CUDA(cudaFree(memory));
      }
    });
  } else if (which == "lazy-kernel") {
    beside_a_wait("the first launch of a kernel", [](cudaStream_t other, int* counter) {
      never_launched_before<<<1, 1, 0, other>>>(counter);
      CUDA(cudaStreamSynchronize(other));
    });
  } else if (which == "other-stream") {
    beside_a_wait("a kernel on another stream", [](cudaStream_t other, int* counter) {
      add_kernel<<<1, 1, 0, other>>>(counter);
      CUDA(cudaStreamSynchronize(other));
    });
  } else if (which == "default-stream") {
    beside_a_wait("a copy on the legacy default stream", [](cudaStream_t, int* counter) {
      int count;
      CUDA(cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDeviceToHost));
    });
  } else if (which == "wait-on-default-stream") {
    beside_a_wait(
        "a kernel on a non-blocking stream",
        [](cudaStream_t other, int* counter) {
          add_kernel<<<1, 1, 0, other>>>(counter);
          CUDA(cudaStreamSynchronize(other));
        },
        cudaStreamLegacy);
  } else if (which == "graph") {
    graph();
  } else {
    std::fprintf(stderr, "usage: stream_flags CASE\n");
    return 2;
  }
}
