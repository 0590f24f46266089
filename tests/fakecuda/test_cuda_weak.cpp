// Weak memory (gpu/weak_memory.hpp) below the runtime: guarantees of streams to the host.
#include "cuda_calls.hpp"
#include "cudart/host_work.hpp"

using namespace fakecuda_test;

namespace {

using Words = std::atomic<std::uint64_t>*;
constexpr int kData = 0, kFlag = 64, kBegun = 128, kSeen = 192, kGo = 256;  // each in its own line

void run_weak(const char* mutant, const std::function<void()>& body) {
  run([&] {
    ::setenv("FAKECUDA_MEMORY", "weak", 1);
    ::setenv("FAKECUDA_MUTANT", mutant, 1);
    body();
  });
}

void copy(void* to, const void* from, cudaStream_t stream) {
  ok(cudaMemcpyAsync(to, from, 4, cudaMemcpyDefault, stream));
}

// The device writes 0x05050505 to the host, then the flag by `write_flag`.
std::uint64_t value_read_by_host(const std::function<void(Words, cudaStream_t)>& write_flag) {
  const auto [words, stream] = make_words_and_stream();
  unsigned char* const memory = allocate(4);
  ok(cudaMemsetAsync(memory, 5, 4, stream));
  copy(&words[kData], memory, stream);
  write_flag(words, stream);
  while (words[kFlag] == 0) std::this_thread::yield();
  return words[kData];
}

// The device reads a word, waits by `wait_flag` until the host has written a new value and the flag, and
// reads again. All is submitted before, because later work sees the host's writes anyway.
std::uint64_t value_read_by_device(const std::function<void(Words, cudaStream_t)>& wait_flag) {
  const auto [words, stream] = make_words_and_stream();
  unsigned char* const memory = allocate(4);
  wait(stream, words[kGo], 1);
  copy(memory, &words[kData], stream);
  write(stream, words[kBegun], 1);
  wait_flag(words, stream);
  copy(memory, &words[kData], stream);
  copy(&words[kSeen], memory, stream);
  words[kGo] = 1;
  while (words[kBegun] == 0) std::this_thread::yield();
  words[kData] = 7;
  words[kFlag] = 1;
  ok(cudaStreamSynchronize(stream));
  return words[kSeen];
}

void write_by_stream(Words words, cudaStream_t stream) { write(stream, words[kFlag], 1); }
void write_by_kernel(Words words, cudaStream_t stream) {
  launch_flag(loaded(write_kernel()), &words[kFlag], 1, stream);
}
void wait_by_stream(Words words, cudaStream_t stream) { wait(stream, words[kFlag], 1); }
void wait_by_kernel(Words words, cudaStream_t stream) {
  launch_flag(loaded(wait_kernel()), &words[kFlag], 1, stream);
}

// Numbers in the PTX of flag_kernels.cu.
constexpr const char *kFenceOfWait = "fence:flag_kernels:0", *kFenceOfWrite = "fence:flag_kernels:1";

}  // namespace

TEST(a_flag_comes_behind_what_was_written_before) {
  run_weak("", [] { CHECK(value_read_by_host(write_by_stream) == 0x05050505); });
  run_weak("", [] { CHECK(value_read_by_host(write_by_kernel) == 0x05050505); });
}

TEST(what_comes_behind_a_wait_sees_what_was_written_before_the_flag) {
  run_weak("", [] { CHECK(value_read_by_device(wait_by_stream) == 7); });
  run_weak("", [] { CHECK(value_read_by_device(wait_by_kernel) == 7); });
}

TEST(neither_without_the_kernels_fence) {
  run_weak(kFenceOfWrite, [] { CHECK(value_read_by_host(write_by_kernel) == 0); });
  run_weak(kFenceOfWait, [] { CHECK(value_read_by_device(wait_by_kernel) == 0); });
  run_weak(kFenceOfWait, [] { CHECK(value_read_by_host(write_by_kernel) == 0x05050505); });
}

TEST(the_host_sees_all_when_it_has_waited) {
  const auto expect = [](const std::function<void(cudaStream_t)>& wait_for) {
    run_weak("", [&] {
      const auto [words, stream] = make_words_and_stream();
      unsigned char* const memory = allocate(4);
      ok(cudaMemsetAsync(memory, 5, 4, stream));
      copy(&words[kData], memory, stream);
      wait_for(stream);
      CHECK(words[kData] == 0x05050505);
    });
  };
  expect([](cudaStream_t stream) { ok(cudaStreamSynchronize(stream)); });
  expect([](cudaStream_t) { ok(cudaDeviceSynchronize()); });
  expect([](cudaStream_t stream) {
    while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
  });
  expect([](cudaStream_t stream) {
    const auto event = make_event();
    ok(cudaEventRecord(event, stream));
    ok(cudaEventSynchronize(event));
  });
  expect([](cudaStream_t stream) {
    const auto event = make_event();
    ok(cudaEventRecord(event, stream));
    while (cudaEventQuery(event) == cudaErrorNotReady) std::this_thread::yield();
  });
  expect([](cudaStream_t stream) {
    std::uint32_t pageable = 0;
    unsigned char* const memory = allocate(4);
    copy(&pageable, memory, stream);
    CHECK(pageable == 0xf7f7f7f7);
  });
}

// Like kernels of the framework here.
TEST(functions_of_the_host_see_what_the_device_sees_and_it_sees_them) {
  run_weak("", [] {
    const auto [words, stream] = make_words_and_stream();
    unsigned char* const memory = allocate(4);
    copy(memory, &words[kData], stream);
    ok(cudaMemsetAsync(&words[kFlag], 5, 4, stream));
    ok(fakecuda::launch(stream, [&] { words[kData] = words[kFlag] + 1; }));
    copy(memory, &words[kData], stream);
    copy(&words[kSeen], memory, stream);
    ok(cudaStreamSynchronize(stream));
    CHECK(words[kSeen] == 0x05050506);
  });
}

CUDA_TEST(places_are_recorded) {
  char name[] = "/tmp/places-XXXXXX";
  CHECK(::close(::mkstemp(name)) == 0);
  ::setenv("FAKECUDA_PLACES", name, 1);
  ::setenv("FAKECUDA_MEMORY", "weak", 1);
  value_read_by_host(write_by_kernel);
  value_read_by_host(write_by_kernel);
  std::FILE* const file = std::fopen(name, "r");
  char text[1000] = {};
  static_cast<void>(!std::fread(text, 1, sizeof text - 1, file));
  ::unlink(name);
  const std::string all = text;
  CHECK(all.find("fence:flag_kernels:1\n") != all.npos && all.find("volatile:flag_kernels:3\n") != all.npos);
  CHECK(all.find("flag_write:") == 0 && all.find("flag_write:", 1) == all.npos);  // this program's one call
}

TEST(a_memory_that_is_neither_is_refused) {
  expect_fault("FAKECUDA_MEMORY is not weak or strong", [] {
    ::setenv("FAKECUDA_MEMORY", "feeble", 1);
    allocate(1);
  });
}

UNIT_MAIN()
