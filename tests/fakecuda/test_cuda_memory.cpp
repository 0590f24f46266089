// Memory of the software CUDA, and its sharing between processes and devices.
#include "cuda_calls.hpp"

using namespace fakecuda_test;

CUDA_TEST(memory_is_poisoned_and_copies_go_in_stream_order) {
  unsigned char* const memory = allocate(1000);
  const auto [words, stream] = make_words_and_stream();
  unsigned char given[1000], taken[1000];
  ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));
  CHECK(taken[0] == 0xf7 && taken[999] == 0xf7);
  std::memset(given, 5, sizeof given);
  wait(stream, words[0], 1);
  ok(cudaMemcpyAsync(memory, given, 1000, cudaMemcpyDefault, stream));
  std::memset(given, 6, sizeof given);  // pageable: already staged
  words[0] = 1;
  ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));  // pageable: waits for the copy
  CHECK(taken[0] == 5 && taken[999] == 5);
  ok(cudaMemsetAsync(memory, 9, 1000, stream));
  ok(cudaMemcpyAsync(taken, memory, 1000, cudaMemcpyDefault, stream));
  CHECK(taken[0] == 9 && taken[999] == 9);
  ok(cudaFree(memory));
  CHECK(allocate(1000) != memory);
  void* none = nullptr;
  CHECK(cudaMalloc(&none, std::size_t{4} << 30) == cudaErrorMemoryAllocation && !none);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
}

TEST(the_device_may_see_the_hosts_memory_elsewhere) {
  run([] {
    ::setenv("FAKECUDA_ELSEWHERE", "1", 1);
    auto* const words = make_words();
    void* seen = nullptr;
    ok(cudaHostGetDevicePointer(&seen, words, 0));
    CHECK(seen != words);
    const auto stream = make_stream();
    launch_flag(loaded_write_kernel(), seen, 9, stream);
    ok(cudaStreamSynchronize(stream));
    CHECK(words[0] == 9);
    ok(cudaFreeHost(words));
  });
  expect_fault("address of the host", [] {
    ::setenv("FAKECUDA_ELSEWHERE", "1", 1);
    const auto stream = make_stream();
    launch_flag(loaded_write_kernel(), make_words(), 9, stream);
    ok(cudaStreamSynchronize(stream));
  });
}

CUDA_TEST(a_free_waits_for_the_device_and_excludes_other_calls) {
  auto* const words = make_words();
  const auto stream = make_stream(), other = make_stream();
  unsigned char* const memory = allocate(10);
  wait(stream, words[0], 1);
  std::atomic<bool> freed{false}, submitted{false};
  std::thread frees([&] {
    ok(cudaFree(memory));
    freed = true;
  });
  settle();
  std::thread submits([&] {
    write(other, words[1], 1);
    submitted = true;
  });
  settle();
  CHECK(!freed && !submitted);
  words[0] = 1;
  frees.join();
  submits.join();
  ok(cudaStreamSynchronize(other));
  CHECK(words[1] == 1);
}

CUDA_TEST(what_a_pointer_is) {
  cudaPointerAttributes attributes;
  unsigned char* const memory = allocate(100);
  ok(cudaPointerGetAttributes(&attributes, memory + 99));
  CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 &&
        attributes.hostPointer == nullptr);
  auto* const words = make_words();
  ok(cudaPointerGetAttributes(&attributes, words));
  CHECK(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == words);
  ok(cudaPointerGetAttributes(&attributes, &attributes));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  ok(cudaFreeHost(words));
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

TEST(a_process_that_is_killed_releases_its_memory) {
  struct Shared {
    cudaIpcMemHandle_t handle;
    std::atomic<bool> open;
  };
  run_processes<Shared>(1, std::chrono::seconds(50), [](int, Common<Shared>& common) {
    int ends[2];
    CHECK(::pipe(ends) == 0);
    const pid_t other = ::fork();  // before this process uses CUDA
    if (other == 0) {
      char go;
      CHECK(::read(ends[0], &go, 1) == 1);
      void* seen;
      ok(cudaIpcOpenMemHandle(&seen, common.data.handle, cudaIpcMemLazyEnablePeerAccess));
      common.data.open = true;
      while (true) ::pause();
    }
    unsigned char* const memory = allocate(10);
    ok(cudaIpcGetMemHandle(&common.data.handle, memory));
    CHECK(::write(ends[1], "1", 1) == 1);
    while (!common.data.open) std::this_thread::yield();
    CHECK(::kill(other, SIGKILL) == 0 && ::waitpid(other, nullptr, 0) == other);
    ok(cudaFree(memory));
  });
}

CUDA_TEST(a_thread_uses_the_device_that_it_has_named) {
  ::setenv("FAKECUDA_DEVICES", "2", 1);
  int device = 7;
  ok(cudaGetDevice(&device));
  CHECK(device == 0);
  ok(cudaSetDevice(1));
  ok(cudaGetDevice(&device));
  CHECK(device == 1 && cudaSetDevice(2) == cudaErrorInvalidDevice);
}

UNIT_MAIN()
