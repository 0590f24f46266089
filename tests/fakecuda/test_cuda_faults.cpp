// Violations of CUDA's rules end the process and are named.
#include "cuda_calls.hpp"

using namespace fakecuda_test;

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
    const auto [words, stream] = make_words_and_stream();
    wait(stream, words[0], 1);
    ok(cudaMemcpyAsync(allocate(10), page, 10, cudaMemcpyDefault, stream));
    ok(cudaHostUnregister(page));
    words[0] = 1;
    ok(cudaStreamSynchronize(stream));
  });
}

TEST(what_is_forbidden_of_kernels_and_words) {
  expect_fault("launch of a kernel that is not loaded",
               [] { launch_flag(write_kernel(), make_words(), 1, make_stream()); });
  const auto write_to = [](const std::function<void*()>& address) {
    return [address] {
      const auto stream = make_stream();
      launch_flag(loaded_write_kernel(), address(), 1, stream);
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
    launch_flag(loaded_write_kernel(), memory, 1, stream);
    ok(cudaStreamSynchronize(stream));
  });
  expect_fault("foreign pointer", [] {
    static std::atomic<std::uint64_t> word{0};
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
  expect_fault("waited too long", [] {
    ::setenv("FAKECUDA_DEADLINE_MS", "30", 1);
    const auto stream = make_stream();
    wait(stream, make_words()[0], 1);
    ok(cudaStreamSynchronize(stream));
  });
  expect_fault("stream of another device", [] {
    ::setenv("FAKECUDA_DEVICES", "2", 1);
    const auto stream = make_stream();
    ok(cudaSetDevice(1));
    launch_flag(loaded_write_kernel(), make_words(), 1, stream);
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
  expect_fault("recorded before the capture", [] {
    const auto first = make_stream(), second = make_stream();
    const auto event = make_event();
    ok(cudaEventRecord(event, first));
    ok(cudaStreamBeginCapture(second, cudaStreamCaptureModeGlobal));
    ok(cudaStreamWaitEvent(second, event, 0));
  });
  expect_fault("recorded in a capture that is over", [] {
    const auto first = make_stream(), second = make_stream();
    const auto event = make_event();
    ok(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    ok(cudaEventRecord(event, first));
    end_capture(first);
    ok(cudaStreamWaitEvent(second, event, 0));
  });
  expect_fault("another stream began the capture", in_capture([](cudaStream_t stream) {
                 const auto event = make_event();
                 const auto other = make_stream();
                 ok(cudaEventRecord(event, stream));
                 ok(cudaStreamWaitEvent(other, event, 0));
                 end_capture(other);
               }));
  expect_fault("cudaStreamQuery: not of what is captured",
               in_capture([](cudaStream_t stream) { ok(cudaStreamQuery(stream)); }));
  expect_fault("cudaEventSynchronize: not of what is captured", in_capture([](cudaStream_t stream) {
                 const auto event = make_event();
                 ok(cudaEventRecord(event, stream));
                 ok(cudaEventSynchronize(event));
               }));
}

UNIT_MAIN()
