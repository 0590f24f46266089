// Registration of kernels with the software CUDA, and missing kernels.
#include "cuda_calls.hpp"

using namespace fakecuda_test;

extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*);
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t);

CUDA_TEST(kernels_are_found_by_the_names_of_nvccs_objects) {
  const auto [words, stream] = make_words_and_stream();
  launch_flag(loaded_write_kernel(), &words[3], 77, stream);
  ok(cudaStreamSynchronize(stream));
  CHECK(words[3] == 77);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, words) == cudaErrorInvalidDeviceFunction);
  const void* const kernel = loaded_write_kernel();
  CHECK(cudaLaunchKernel(kernel, dim3(0), dim3(1), nullptr, 0, stream) == cudaErrorInvalidConfiguration);
}

// nvcc's code for kernel<<<2, 3, 0, stream>>>(word, 8).
TEST(a_launch_in_brackets) {
  run([] {
    const auto [words, stream] = make_words_and_stream();
    const void* const function = loaded_write_kernel();
    CHECK(__cudaPushCallConfiguration(dim3(2), dim3(3), 0, stream) == 0);
    dim3 grid, block;
    std::size_t shared = 1;
    cudaStream_t given = nullptr;
    ok(__cudaPopCallConfiguration(&grid, &block, &shared, &given));
    CHECK(grid.x == 2 && block.x == 3 && shared == 0 && given == stream);
    cudaKernel_t kernel;
    ok(__cudaGetKernel(&kernel, function));
    void* word = &words[1];
    std::uint64_t value = 8;
    void* none = nullptr;
    void* arguments[] = {&word, &value, &none, &none};
    ok(__cudaLaunchKernel(kernel, grid, block, arguments, shared, given));
    ok(cudaStreamSynchronize(stream));
    CHECK(words[1] == 8);
  });
  expect_fault("without <<< >>>", [] {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t stream;
    ok(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  });
}

TEST(modules_may_be_loaded_eagerly_and_are_a_devices_own) {
  run([] {
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    const auto [words, stream] = make_words_and_stream();
    launch_flag(write_kernel(), &words[0], 1, stream);
    ok(cudaStreamSynchronize(stream));
    CHECK(words[0] == 1);
  });
  expect_fault("launch of a kernel that is not loaded", [] {
    ::setenv("FAKECUDA_DEVICES", "2", 1);
    const void* const kernel = loaded_write_kernel();
    ok(cudaSetDevice(1));
    launch_flag(kernel, make_words(), 1, make_stream());
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

UNIT_MAIN()
