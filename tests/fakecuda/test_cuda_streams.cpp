// Streams, events and graphs of the software CUDA.
#include "cuda_calls.hpp"
#include "cudart/host_work.hpp"

using namespace fakecuda_test;

CUDA_TEST(streams_run_beside_each_other_but_the_legacy_one_takes_turns) {
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
}

CUDA_TEST(streams_of_one_hardware_queue_hold_each_other_up) {
  ::setenv("FAKECUDA_QUEUES", "1", 1);
  auto* const words = make_words();
  const auto first = make_stream(), second = make_stream();
  wait(first, words[0], 1);
  write(second, words[1], 1);
  settle();
  CHECK(words[1] == 0);
  words[0] = 1;
  ok(cudaStreamSynchronize(second));
  CHECK(words[1] == 1);
}

CUDA_TEST(a_copy_runs_beside_a_kernel_of_the_same_hardware_queue) {
  ::setenv("FAKECUDA_QUEUES", "1", 1);
  auto* const words = make_words();
  unsigned char* const memory = allocate(8);
  const auto first = make_stream(), second = make_stream();
  launch_flag(loaded(wait_kernel()), &words[0], 1, first);
  words[1] = 7;
  ok(cudaMemcpyAsync(memory, &words[1], 8, cudaMemcpyDefault, second));
  ok(cudaMemcpyAsync(&words[2], memory, 8, cudaMemcpyDefault, second));
  ok(cudaStreamSynchronize(second));
  CHECK(words[2] == 7 && cudaStreamQuery(first) == cudaErrorNotReady);
  words[0] = 1;
  ok(cudaStreamSynchronize(first));
}

CUDA_TEST(copies_of_one_direction_do_not_overlap) {
  // Each of the 8 takes up to 40 ms, by the seed, and all take 40 ms if they overlap.
  ::setenv("FAKECUDA_DELAY_US", "40000", 1);
  auto* const words = make_words();
  unsigned char* const memory = allocate(64);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i)
    ok(cudaMemcpyAsync(memory + 8 * i, &words[i], 8, cudaMemcpyDefault, make_stream()));
  ok(cudaDeviceSynchronize());
  CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(100));
}

CUDA_TEST(who_submits_to_a_full_queue_waits) {
  ::setenv("FAKECUDA_DEPTH", "4", 1);
  const auto [words, stream] = make_words_and_stream();
  wait(stream, words[0], 1);
  std::atomic<int> submitted{0};
  std::thread host([&] {
    for (; submitted < 20; ++submitted) write(stream, words[1], 1);
  });
  settle();
  CHECK(submitted < 4);
  words[0] = 1;
  host.join();
  ok(cudaStreamSynchronize(stream));
}

CUDA_TEST(a_wait_is_for_the_record_at_the_time_of_the_call) {
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
  settle();
  CHECK(words[1] == 0 && cudaEventQuery(event) == cudaSuccess);
  words[0] = 1;
  ok(cudaStreamSynchronize(second));
  ok(cudaEventDestroy(event));
}

CUDA_TEST(a_thread_has_a_default_stream_of_its_own_on_request) {
  auto* const words = make_words();
  wait(cudaStreamPerThread, words[0], 1);
  std::thread([&] {
    write(cudaStreamPerThread, words[1], 1);
    ok(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  CHECK(words[1] == 1);
  ok(fakecuda::launch(cudaStreamPerThread, [&] { words[2] = 7; }));
  settle();
  CHECK(words[2] == 0);
  words[0] = 1;
  ok(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(words[2] == 7);
}

CUDA_TEST(a_graph_runs_what_was_recorded_any_number_of_times_and_its_branches_side_by_side) {
  auto* const words = make_words();
  const auto first = make_stream(), second = make_stream();
  const auto fork = make_event(), join = make_event();
  const void* const kernel = loaded_write_kernel();
  ok(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  wait(first, words[5], 1);  // by the host
  ok(cudaEventRecord(fork, first));
  ok(cudaStreamWaitEvent(second, fork, 0));
  wait(first, words[0], 1);  // by the other branch
  launch_flag(kernel, &words[1], 1, first);
  launch_flag(kernel, &words[0], 1, second);
  wait(second, words[3], 1);  // by the host
  launch_flag(kernel, &words[4], 1, second);
  ok(cudaEventRecord(join, second));
  ok(cudaStreamWaitEvent(first, join, 0));
  ok(cudaMemcpyAsync(&words[2], &words[4], 8, cudaMemcpyDefault, first));
  const auto exec = end_capture(first);
  for (int replay = 0; replay < 3; ++replay) {
    for (int i = 0; i < 8; ++i) words[i] = 0;
    wait(first, words[7], 1);  // by the host
    ok(cudaGraphLaunch(exec, first));
    write(first, words[6], 1);
    words[replay == 0 ? 5 : 7] = 1;
    settle();
    CHECK(words[0] == 0);
    words[replay == 0 ? 7 : 5] = 1;
    while (words[1] == 0) std::this_thread::yield();
    settle();
    CHECK(words[6] == 0);
    words[3] = 1;
    ok(cudaStreamSynchronize(first));
    CHECK(words[2] == 1 && words[6] == 1);
  }
  ok(cudaGraphExecDestroy(exec));
}

CUDA_TEST(a_capture_with_work_that_was_not_joined_is_over_and_has_made_nothing) {
  auto* const words = make_words();
  const auto first = make_stream(), second = make_stream();
  const auto event = make_event();
  ok(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  ok(cudaEventRecord(event, first));
  ok(cudaStreamWaitEvent(second, event, 0));
  write(second, words[0], 1);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnjoined);
  write(second, words[1], 1);
  ok(cudaStreamSynchronize(second));
  CHECK(words[0] == 0 && words[1] == 1);
}

CUDA_TEST(functions_of_the_host_are_kernels) {
  int runs = 0;
  const auto stream = make_stream();
  ok(fakecuda::launch(stream, [&] { ++runs; }));
  ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ok(fakecuda::launch(stream, [&] { ++runs; }));
  fakecuda::slip_in(stream, [&] { ++runs; });
  const auto exec = end_capture(stream);
  for (int i = 0; i < 2; ++i) ok(cudaGraphLaunch(exec, stream));
  ok(cudaStreamSynchronize(stream));
  CHECK(runs == 5);
}

CUDA_TEST(a_device_refuses_one_submission_on_request) {
  const auto [words, stream] = make_words_and_stream();
  fakecuda::refuse_after(0, 1);
  ok(cudaStreamQuery(stream));
  write(stream, words[0], 1);
  CHECK(fakecuda::launch(stream, [&] { words[1] = 1; }) == cudaErrorUnknown);
  CHECK(cudaGetLastError() == cudaErrorUnknown);
  write(stream, words[2], 1);
  ok(cudaStreamSynchronize(stream));
  CHECK(words[0] == 1 && words[1] == 0 && words[2] == 1);
}

CUDA_TEST(a_capture_forbids_waits_only_in_strict_modes) {
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
}

UNIT_MAIN()
