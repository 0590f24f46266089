// The software CUDA keeps CUDA's contract, and ends a process that does not. Each test has a process of its
// own, because what CUDA was told stays.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "processes.hpp"
#include "test.hpp"

using namespace fakecuda_test;

extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, dim3*,
                                       dim3*, int*);

namespace {

void run(const std::function<void()>& body) {
  run_processes<int>(1, std::chrono::seconds(50), [&](int, Common<int>&) { body(); });
}

void ok(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorName(status));
}
void ok(CUresult status) {
  if (status != CUDA_SUCCESS) throw std::runtime_error("driver: " + std::to_string(status));
}

// Words of pinned memory, zeroed.
std::atomic<std::uint32_t>* make_words() {
  void* memory = nullptr;
  ok(cudaHostAlloc(&memory, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(memory, 0, 4096);
  return static_cast<std::atomic<std::uint32_t>*>(memory);
}
CUdeviceptr at(std::atomic<std::uint32_t>& word) { return reinterpret_cast<CUdeviceptr>(&word); }
void write(cudaStream_t stream, std::atomic<std::uint32_t>& word, std::uint32_t value) {
  ok(cuInit(0));
  ok(cuStreamWriteValue32(stream, at(word), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}
void wait(cudaStream_t stream, std::atomic<std::uint32_t>& word, std::uint32_t value) {
  ok(cuInit(0));
  ok(cuStreamWaitValue32(stream, at(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}
cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}
cudaEvent_t make_event() {
  cudaEvent_t event;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
unsigned char* allocate(std::size_t bytes) {
  void* memory = nullptr;
  ok(cudaMalloc(&memory, bytes));
  return static_cast<unsigned char*>(memory);
}

// A kernel of flag_kernels.cu, as nvcc's objects make it known; the name's hashes are of another compilation.
const void* write_kernel() {
  static char function;
  __cudaRegisterFunction(
      nullptr, &function, &function,
      "_ZN6mpigdr3gpu48_GLOBAL__N__00000000_15_flag_kernels_cu_0000000012write_kernelIjEEvPVT_S3_", -1,
      nullptr, nullptr, nullptr, nullptr, nullptr);
  return &function;
}
const void* loaded_write_kernel() {
  const void* const kernel = write_kernel();
  cudaFuncAttributes attributes;
  ok(cudaFuncGetAttributes(&attributes, kernel));
  return kernel;
}
void launch_write(const void* kernel, void* word, std::uint32_t value, cudaStream_t stream) {
  void* arguments[] = {&word, &value};
  ok(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream));
}

cudaGraphExec_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ok(cudaStreamEndCapture(stream, &graph));
  ok(cudaGraphInstantiate(&exec, graph, 0));
  ok(cudaGraphDestroy(graph));
  return exec;
}

// Dies by abort() and names the rule.
void expect_fault(const char* rule, const std::function<void()>& body) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::alarm(20);
    try {
      body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "exception: %s\n", e.what());
    }
    std::_Exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char text[512];
  for (ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;)
    said.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && said.find(rule) != std::string::npos) return;
  throw std::runtime_error(std::string("expected the fault '") + rule + "', but it said '" + said +
                           "', status " + std::to_string(status));
}

}  // namespace

TEST(streams_run_beside_each_other_but_the_legacy_one_takes_turns) {
  run([] {
    auto* const words = make_words();
    const auto blocking = make_stream(cudaStreamDefault), later = make_stream(cudaStreamDefault),
               apart = make_stream();
    wait(blocking, words[0], 1);
    write(nullptr, words[1], 1);
    write(later, words[2], 1);
    write(apart, words[3], 1);
    ok(cudaStreamSynchronize(apart));
    CHECK(words[3] == 1 && words[1] == 0 && words[2] == 0);
    CHECK(cudaStreamQuery(later) == cudaErrorNotReady && cudaGetLastError() == cudaErrorNotReady);
    words[0] = 1;
    ok(cudaDeviceSynchronize());
    CHECK(words[1] == 1 && words[2] == 1 && cudaStreamQuery(later) == cudaSuccess);
  });
}

TEST(streams_of_one_hardware_queue_hold_each_other_up) {
  run([] {
    ::setenv("FAKECUDA_QUEUES", "1", 1);
    auto* const words = make_words();
    const auto first = make_stream(), second = make_stream();
    wait(first, words[0], 1);
    write(second, words[1], 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(words[1] == 0);
    words[0] = 1;
    ok(cudaStreamSynchronize(second));
    CHECK(words[1] == 1);
  });
}

TEST(who_submits_to_a_full_queue_waits) {
  run([] {
    ::setenv("FAKECUDA_DEPTH", "4", 1);
    auto* const words = make_words();
    const auto stream = make_stream();
    wait(stream, words[0], 1);
    std::atomic<int> submitted{0};
    std::thread host([&] {
      for (; submitted < 20; ++submitted) write(stream, words[1], 1);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(submitted < 4);
    words[0] = 1;
    host.join();
    ok(cudaStreamSynchronize(stream));
  });
}

TEST(a_wait_is_for_the_record_at_the_time_of_the_call) {
  run([] {
    auto* const words = make_words();
    const auto first = make_stream(), second = make_stream(), third = make_stream();
    const auto event = make_event();
    ok(cudaStreamWaitEvent(second, event, 0));  // never recorded: nothing to wait for
    wait(first, words[0], 1);
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(second, event, 0));
    write(second, words[1], 1);
    ok(cudaEventRecord(event, third));
    ok(cudaEventSynchronize(event));
    CHECK(words[1] == 0 && cudaEventQuery(event) == cudaSuccess);
    words[0] = 1;
    ok(cudaStreamSynchronize(second));
    ok(cudaEventDestroy(event));
  });
}

TEST(memory_is_poisoned_and_copies_go_in_stream_order) {
  run([] {
    unsigned char* const memory = allocate(1000);
    const auto stream = make_stream();
    auto* const words = make_words();
    unsigned char given[1000], taken[1000];
    ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));
    CHECK(taken[0] == 0xf7 && taken[999] == 0xf7);
    std::memset(given, 5, sizeof given);
    wait(stream, words[0], 1);
    ok(cudaMemcpyAsync(memory, given, 1000, cudaMemcpyDefault, stream));
    std::memset(given, 6, sizeof given);  // pageable: was taken
    words[0] = 1;
    ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));  // pageable: is waited for
    CHECK(taken[0] == 5 && taken[999] == 5);
    ok(cudaMemsetAsync(memory, 9, 1000, stream));
    ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));
    CHECK(taken[0] == 9 && taken[999] == 9);
    ok(cudaFree(memory));
    CHECK(allocate(1000) != memory);
    void* none = nullptr;
    CHECK(cudaMalloc(&none, std::size_t{1} << 60) == cudaErrorMemoryAllocation && !none);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
  });
}

TEST(kernels_are_found_by_the_names_of_nvccs_objects) {
  run([] {
    auto* const words = make_words();
    const auto stream = make_stream();
    launch_write(loaded_write_kernel(), &words[3], 77, stream);
    ok(cudaStreamSynchronize(stream));
    CHECK(words[3] == 77);
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, words) == cudaErrorInvalidDeviceFunction);
    const void* const kernel = loaded_write_kernel();
    CHECK(cudaLaunchKernel(kernel, dim3(0), dim3(1), nullptr, 0, stream) == cudaErrorInvalidConfiguration);
  });
}

TEST(a_graph_runs_what_was_recorded_any_number_of_times_and_its_branches_side_by_side) {
  run([] {
    auto* const words = make_words();
    const auto first = make_stream(), second = make_stream();
    const auto fork = make_event(), join = make_event();
    const void* const kernel = loaded_write_kernel();
    ok(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    ok(cudaEventRecord(fork, first));
    ok(cudaStreamWaitEvent(second, fork, 0));
    wait(first, words[0], 1);  // what the other branch writes
    launch_write(kernel, &words[1], 1, first);
    launch_write(kernel, &words[0], 1, second);
    ok(cudaEventRecord(join, second));
    ok(cudaStreamWaitEvent(first, join, 0));
    ok(cudaMemcpyAsync(&words[2], &words[1], 4, cudaMemcpyDefault, first));
    const auto exec = end_capture(first);
    CHECK(words[0] == 0 && words[1] == 0);
    for (int replay = 0; replay < 3; ++replay) {
      for (int i = 0; i < 3; ++i) words[i] = 0;
      ok(cudaGraphLaunch(exec, first));
      write(first, words[3], 1);
      ok(cudaStreamSynchronize(first));
      CHECK(words[0] == 1 && words[1] == 1 && words[2] == 1);
    }
    ok(cudaGraphExecDestroy(exec));
  });
}

TEST(a_capture_forbids_what_may_wait_only_where_its_mode_says_so) {
  run([] {
    const auto stream = make_stream();
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([] { allocate(10); }).join();
    auto mode = cudaStreamCaptureModeRelaxed;
    ok(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeGlobal);
    allocate(10);
    cudaStreamCaptureStatus status;
    ok(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    end_capture(stream);
    ok(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
  });
}

TEST(another_process_sees_the_same_memory_at_its_own_address) {
  struct Shared {
    cudaIpcMemHandle_t handle;
    void* address;
  };
  run_processes<Shared>(2, std::chrono::seconds(50), [](int rank, Common<Shared>& common) {
    const auto stream = make_stream();
    unsigned char* const memory = allocate(5000);
    if (rank == 0) {
      ok(cudaIpcGetMemHandle(&common.data.handle, memory));
      common.data.address = memory;
      ok(cudaMemsetAsync(memory, 3, 5000, stream));
      ok(cudaStreamSynchronize(stream));
    }
    common.meet(2);
    void *seen = nullptr, *again = nullptr;
    if (rank == 1) {
      ok(cudaIpcOpenMemHandle(&seen, common.data.handle, cudaIpcMemLazyEnablePeerAccess));
      ok(cudaIpcOpenMemHandle(&again, common.data.handle, cudaIpcMemLazyEnablePeerAccess));
      CHECK(seen == again && seen != common.data.address);
      ok(cudaMemsetAsync(static_cast<unsigned char*>(seen) + 1, 4, 1, stream));
      ok(cudaStreamSynchronize(stream));
      ok(cudaIpcCloseMemHandle(seen));
      ok(cudaIpcCloseMemHandle(seen));
    }
    common.meet(2);
    unsigned char taken[2];
    if (rank == 0) {
      ok(cudaMemcpyAsync(taken, memory, 2, cudaMemcpyDefault, stream));
      CHECK(taken[0] == 3 && taken[1] == 4);
    }
    ok(cudaFree(memory));
    common.meet(2);
    if (rank == 1)
      CHECK(cudaIpcOpenMemHandle(&seen, common.data.handle, cudaIpcMemLazyEnablePeerAccess) ==
            cudaErrorMapBufferObjectFailed);
  });
}

TEST(devices_reach_each_other_when_they_are_told_to) {
  run([] {
    ::setenv("FAKECUDA_DEVICES", "2", 1);
    unsigned char* const memory = allocate(16);
    ok(cudaSetDevice(1));
    int device = 0, can = 0;
    ok(cudaGetDevice(&device));
    ok(cudaDeviceCanAccessPeer(&can, 1, 0));
    CHECK(device == 1 && can == 1);
    ok(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    const auto stream = make_stream();
    launch_write(loaded_write_kernel(), memory, 5, stream);
    ok(cudaStreamSynchronize(stream));
    CHECK(memory[0] == 5);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  });
}

TEST(an_old_driver_and_a_forked_process_have_no_cuda) {
  run([] {
    ::setenv("FAKECUDA_DRIVER", std::to_string(CUDART_VERSION / 1000 * 1000 - 1000).c_str(), 1);
    int count = 7;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 0);
  });
  run([] {
    allocate(10);
    const pid_t child = ::fork();
    void* memory = nullptr;
    if (child == 0) std::_Exit(cudaMalloc(&memory, 10) == cudaErrorInitializationError ? 0 : 1);
    int status = 1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  });
}

TEST(what_is_forbidden_of_memory) {
  expect_fault("double free", [] {
    void* const memory = allocate(10);
    ok(cudaFree(memory));
    ok(cudaFree(memory));
  });
  expect_fault("free of what was never allocated", [] { ok(cudaFree(allocate(10) + 1)); });
  expect_fault("use after free", [] {
    unsigned char *const memory = allocate(10), *const other = allocate(10);
    ok(cudaFree(memory));
    ok(cudaMemcpyAsync(other, memory, 10, cudaMemcpyDefault, make_stream()));
  });
  expect_fault("out of bounds", [] {
    unsigned char *const memory = allocate(100), *const other = allocate(10);
    ok(cudaMemcpyAsync(memory, other, 11, cudaMemcpyDefault, make_stream()));
  });
  expect_fault("IPC handle opened in its own process", [] {
    cudaIpcMemHandle_t handle;
    void* seen;
    ok(cudaIpcGetMemHandle(&handle, allocate(10)));
    ok(cudaIpcOpenMemHandle(&seen, handle, cudaIpcMemLazyEnablePeerAccess));
  });
  expect_fault("not registered any more", [] {
    void* const page = std::aligned_alloc(4096, 4096);
    ok(cudaHostRegister(page, 4096, cudaHostRegisterMapped));
    CHECK(cudaHostRegister(page, 4096, cudaHostRegisterMapped) == cudaErrorHostMemoryAlreadyRegistered);
    auto* const words = make_words();
    const auto stream = make_stream();
    wait(stream, words[0], 1);
    ok(cudaMemcpyAsync(allocate(10), page, 10, cudaMemcpyDefault, stream));
    ok(cudaHostUnregister(page));
    words[0] = 1;
    ok(cudaStreamSynchronize(stream));
  });
}

TEST(memory_that_another_process_has_open_is_not_freed) {
  struct Shared {
    cudaIpcMemHandle_t handle;
  };
  run_processes<Shared>(2, std::chrono::seconds(50), [](int rank, Common<Shared>& common) {
    if (rank == 0) {
      expect_fault("free of memory that another process has open", [&] {
        unsigned char* const memory = allocate(10);
        ok(cudaIpcGetMemHandle(&common.data.handle, memory));
        common.meet(2);
        common.meet(2);
        ok(cudaFree(memory));
      });
    } else {
      common.meet(2);
      void* seen;
      ok(cudaIpcOpenMemHandle(&seen, common.data.handle, cudaIpcMemLazyEnablePeerAccess));
      common.meet(2);
    }
    common.meet(2);
  });
}

TEST(what_is_forbidden_of_kernels_and_words) {
  expect_fault("launch of a kernel that is not loaded",
               [] { launch_write(write_kernel(), make_words(), 1, make_stream()); });
  const auto write_to = [](const std::function<void*()>& address) {
    return [address] {
      const auto stream = make_stream();
      launch_write(loaded_write_kernel(), address(), 1, stream);
      ok(cudaStreamSynchronize(stream));
    };
  };
  expect_fault("foreign pointer", write_to([] { return std::malloc(8); }));
  expect_fault("misaligned", write_to([] { return allocate(8) + 2; }));
  expect_fault("out of bounds", write_to([] { return allocate(8) + 8; }));
  expect_fault("use after free", write_to([] {
                 void* const memory = allocate(8);
                 ok(cudaFree(memory));
                 return memory;
               }));
  expect_fault("without peer access", [] {
    ::setenv("FAKECUDA_DEVICES", "2", 1);
    void* const memory = allocate(8);
    ok(cudaSetDevice(1));
    const auto stream = make_stream();
    launch_write(loaded_write_kernel(), memory, 1, stream);
    ok(cudaStreamSynchronize(stream));
  });
  expect_fault("foreign pointer", [] {
    static std::atomic<std::uint32_t> word{0};
    write(make_stream(), word, 1);
  });
}

TEST(what_is_forbidden_of_streams_and_captures) {
  const auto in_capture = [](const std::function<void(cudaStream_t)>& body,
                             unsigned flags = cudaStreamNonBlocking) {
    return [body, flags] {
      const auto stream = make_stream(flags);
      ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      body(stream);
    };
  };
  expect_fault("no such stream", [] {
    const auto stream = make_stream();
    ok(cudaStreamDestroy(stream));
    ok(cudaStreamSynchronize(stream));
  });
  expect_fault("stream of another device", [] {
    ::setenv("FAKECUDA_DEVICES", "2", 1);
    const auto stream = make_stream();
    ok(cudaSetDevice(1));
    launch_write(loaded_write_kernel(), make_words(), 1, stream);
  });
  expect_fault("cudaMalloc: not while a stream is captured", in_capture([](cudaStream_t) { allocate(10); }));
  expect_fault("cudaMalloc: not while a stream is captured",
               in_capture([](cudaStream_t) { std::thread([] { allocate(10); }).join(); }));
  expect_fault("cudaStreamSynchronize: not of what is captured",
               in_capture([](cudaStream_t stream) { ok(cudaStreamSynchronize(stream)); }));
  expect_fault("pageable memory: not of what is captured", [] {
    unsigned char* const memory = allocate(10);
    const auto stream = make_stream();
    unsigned char host[10] = {};
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ok(cudaMemcpyAsync(memory, host, 10, cudaMemcpyDefault, stream));
  });
  expect_fault("the legacy stream would wait",
               in_capture([](cudaStream_t) { ok(cudaStreamSynchronize(nullptr)); }, cudaStreamDefault));
  expect_fault("another thread began the capture", in_capture([](cudaStream_t stream) {
                 std::thread([stream] { end_capture(stream); }).join();
               }));
  expect_fault("was not joined", [] {
    auto* const words = make_words();
    const auto first = make_stream(), second = make_stream();
    const auto event = make_event();
    ok(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(second, event, 0));
    write(second, words[0], 1);
    end_capture(first);
  });
  expect_fault("recorded before the capture", [] {
    const auto first = make_stream(), second = make_stream();
    const auto event = make_event();
    ok(cudaEventRecord(event, first));
    ok(cudaStreamBeginCapture(second, cudaStreamCaptureModeGlobal));
    ok(cudaStreamWaitEvent(second, event, 0));
  });
  expect_fault("cudaEventSynchronize: not of what is captured", in_capture([](cudaStream_t stream) {
                 const auto event = make_event();
                 ok(cudaEventRecord(event, stream));
                 ok(cudaEventSynchronize(event));
               }));
}

UNIT_MAIN()
