// The software NCCL: results, and how it hangs, fails and ends.
#include <dlfcn.h>

#include <cmath>

#include "nccl_rank.hpp"

using namespace fakecuda_test;

namespace {

constexpr Type kTypes[] = {kInt8,   kUint8,   kInt32,   kUint32,  kInt64,
                           kUint64, kFloat16, kFloat32, kFloat64, kBfloat16};
constexpr Op kOps[] = {kSum, kProd, kMax, kMin, kAvg};

void check(Type type, const std::byte* got, const std::vector<double>& expected, double tolerance = 0) {
  const auto all = values(type, got, expected.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(std::abs(all[i] - expected[i]) <= tolerance * expected[i]);
}

// Averages are inexact: NCCL multiplies by the inverse.
double tolerance(Type type, Op op) {
  if (op != kAvg || type < kFloat16) return 0;
  return type == kBfloat16 ? 0.02 : type == kFloat16 ? 2e-3 : 1e-6;
}

std::vector<double> part(const std::vector<double>& all, int rank, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// All collectives, each in place and not.
void run_collectives(NcclRank& self, Comm* comm, Type type, Op op, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(self.size), own = static_cast<std::size_t>(self.rank);
  const std::size_t bytes = count * fakenccl::size_of(type);
  const int root = self.size - 1;
  const double inexact = tolerance(type, op);
  const Bytes mine = numbers(type, self.rank, count), wide = numbers(type, self.rank, ranks * count);
  const auto sum = reduced(type, op, self.size, count),
             wide_sum = reduced(type, op, self.size, ranks * count);
  for (const bool in_place : {false, true}) {
    const auto output = [&](std::byte* input) { return in_place ? input : self.put({}, 0, bytes); };
    auto* input = self.put(mine);
    auto* const everywhere = output(input);
    ok(ncclAllReduce(input, everywhere, count, type, op, comm, self.stream));
    input = self.put(mine);
    auto* const at_root = output(input);
    ok(ncclReduce(input, at_root, count, type, op, root, comm, self.stream));
    input = self.put(mine);
    auto* const of_root = output(input);
    ok(ncclBroadcast(input, of_root, count, type, root, comm, self.stream));
    input = self.put(wide);
    auto* const scattered = in_place ? input + own * bytes : self.put({}, 0, bytes);
    ok(ncclReduceScatter(input, scattered, count, type, op, comm, self.stream));
    auto* const gathered = self.put(mine, own * bytes, ranks * bytes);
    ok(ncclAllGather(in_place ? gathered + own * bytes : self.put(mine), gathered, count, type, comm,
                     self.stream));
    self.synchronize();
    check(type, everywhere, sum, inexact);
    if (self.rank == root) check(type, at_root, sum, inexact);
    check(type, of_root, values(type, numbers(type, root, count).data(), count));
    check(type, scattered, part(wide_sum, self.rank, count), inexact);
    for (int rank = 0; rank < self.size; ++rank)
      check(type, gathered + static_cast<std::size_t>(rank) * bytes,
            values(type, numbers(type, rank, count).data(), count));
  }
}

void all_reduce(NcclRank& self, Comm* comm, std::byte* memory, std::size_t count = 100) {
  ok(ncclAllReduce(memory, memory, count, kFloat32, kSum, comm, self.stream));
}

void expect_sum(NcclRank& self, const std::byte* memory, std::size_t count = 100) {
  check(kFloat32, memory, reduced(kFloat32, kSum, self.size, count));
}

// A fault of a process that is the only rank.
void expect_lone_fault(const char* rule, const std::function<void(NcclRank&, Comm*)>& body) {
  expect_fault(rule, [&] {
    Common<Ids> common;
    NcclRank self(0, 1, common);
    body(self, self.start());
  });
}

}  // namespace

TEST(collectives_have_the_results_of_all_types_and_operations) {
  for (const int size : {2, 3})
    run_ranks(size, [](NcclRank& self) {
      Comm* const comm = self.start();
      for (const Type type : kTypes)
        for (const Op op : kOps) run_collectives(self, comm, type, op, 37);
      run_collectives(self, comm, kFloat32, kSum, 150'001);  // several chunks
      run_collectives(self, comm, kBfloat16, kMax, 300'000);
      ok(ncclCommDestroy(comm));
    });
}

TEST(a_library_that_is_loaded_is_found_by_its_name) {
  run([] { CHECK(dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)); });
}

TEST(sends_and_receives_of_a_group_move_at_once) {
  run_ranks(3, [](NcclRank& self) {
    Comm* const comm = self.start();
    for (const std::size_t count : {0u, 10u, 500'000u}) {
      const std::size_t bytes = count * sizeof(float);
      auto* const input = self.put(numbers(kFloat32, self.rank, count));
      std::vector<std::byte*> outputs;
      ok(ncclGroupStart());
      for (int peer = 0; peer < self.size; ++peer)  // itself, too
        for (int twice = 0; twice < 2; ++twice) {
          outputs.push_back(self.put({}, 0, bytes));
          ok(ncclSend(input, twice ? count : count / 2, kFloat32, peer, comm, self.stream));
          ok(ncclRecv(outputs.back(), twice ? count : count / 2, kFloat32, peer, comm, self.stream));
        }
      ok(ncclGroupEnd());
      self.synchronize();
      for (int peer = 0; peer < self.size; ++peer)
        check(kFloat32, outputs[static_cast<std::size_t>(peer) * 2 + 1],
              values(kFloat32, numbers(kFloat32, peer, count).data(), count));
    }
    // Alone, from rank to rank.
    auto* const memory = self.put(numbers(kFloat32, self.rank, 10));
    if (self.rank > 0) ok(ncclRecv(memory, 10, kFloat32, self.rank - 1, comm, self.stream));
    if (self.rank + 1 < self.size) ok(ncclSend(memory, 10, kFloat32, self.rank + 1, comm, self.stream));
    self.synchronize();
    check(kFloat32, memory, values(kFloat32, numbers(kFloat32, 0, 10).data(), 10));
    ok(ncclCommDestroy(comm));
  });
}

TEST(a_group_has_calls_of_several_communicators) {
  run_ranks(2, [](NcclRank& self) {
    Comm* const comms[] = {self.start(), self.start(true, 1)};
    std::byte* memory[4];
    for (auto& it : memory) it = self.put(numbers(kFloat32, self.rank, 100));
    ok(ncclGroupStart());
    for (int i = 0; i < 4; ++i) {
      ok(ncclAllReduce(memory[i], memory[i], 100, kFloat32, kSum, comms[i % 2], self.stream));
      CHECK(self.idle());  // nothing is enqueued yet
    }
    ok(ncclGroupEnd());
    self.synchronize();
    for (const auto* it : memory) expect_sum(self, it);
    CHECK(ncclGroupEnd() == kInvalidUsage);
    ok(ncclGroupStart());
    CHECK(ncclAllReduce(memory[0], memory[0], 1, kFloat32, Op{9}, comms[0], self.stream) == kInvalidArgument);
    CHECK(ncclGroupEnd() == kInvalidArgument);
    for (Comm* const comm : comms) ok(ncclCommDestroy(comm));
  });
}

TEST(inputs_are_multiplied_before_they_are_added) {
  run_ranks(2, [](NcclRank& self) {
    Comm* const comm = self.start();
    for (const auto residence : {kHostImmediate, kDevice}) {
      float factor = self.rank == 0 ? 0.5f : 2;
      Bytes bytes(sizeof factor);
      std::memcpy(bytes.data(), &factor, sizeof factor);
      Op op;
      ok(ncclRedOpCreatePreMulSum(&op, residence == kDevice ? self.put(bytes) : bytes.data(), kFloat32,
                                  residence, comm));
      auto* const memory = self.put(numbers(kFloat32, self.rank, 100));
      CHECK(ncclAllReduce(memory, memory, 100, kInt32, op, comm, self.stream) == kInvalidArgument);
      ok(ncclAllReduce(memory, memory, 100, kFloat32, op, comm, self.stream));
      ok(ncclRedOpDestroy(op, comm));
      CHECK(ncclRedOpDestroy(op, comm) == kInvalidArgument);
      self.synchronize();
      auto expected = values(kFloat32, numbers(kFloat32, 0, 100).data(), 100);
      const auto other = values(kFloat32, numbers(kFloat32, 1, 100).data(), 100);
      for (std::size_t i = 0; i < 100; ++i) expected[i] = 0.5 * expected[i] + 2 * other[i];
      check(kFloat32, memory, expected);
    }
    ok(ncclCommDestroy(comm));
  });
}

TEST(a_captured_call_runs_with_each_launch_of_the_graph) {
  run_ranks(2, [](NcclRank& self) {
    Comm* const comm = self.start();
    const Bytes mine = numbers(kFloat32, self.rank, 100);
    auto *const input = self.put(mine), *const output = self.put({}, 0, mine.size());
    const auto call = [&] { ok(ncclAllReduce(input, output, 100, kFloat32, kSum, comm, self.stream)); };
    call();  // connects
    self.synchronize();
    ok(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeGlobal));
    call();
    const auto exec = end_capture(self.stream);
    for (int replay = 0; replay < 2; ++replay) {
      std::memset(output, 0, mine.size());
      ok(cudaGraphLaunch(exec, self.stream));
      self.synchronize();
      expect_sum(self, output);
    }
    ok(cudaGraphExecDestroy(exec));
    ok(ncclCommDestroy(comm));
  });
}

TEST(a_reduction_begins_at_another_rank_than_the_first) {
  run_ranks(3, [](NcclRank& self) {
    Comm* const comm = self.start();
    const float inputs[] = {1, 1e8, -1e8};  // 0 if added from rank 0 on
    Bytes bytes(sizeof(float));
    std::memcpy(bytes.data(), &inputs[self.rank], sizeof(float));
    auto* const memory = self.put(bytes);
    all_reduce(self, comm, memory, 1);
    ok(ncclCommDestroy(comm));  // waits for the kernel
    CHECK(self.idle());
    check(kFloat32, memory, {1});
  });
}

TEST(an_abort_ends_kernels_that_spin_and_concerns_no_other_rank) {
  run_ranks(2, [](NcclRank& self) {
    Comm* const comm = self.start();
    auto* const memory = self.put(numbers(kFloat32, self.rank, 100));
    all_reduce(self, comm, memory);
    self.synchronize();
    if (self.rank == 0) all_reduce(self, comm, memory);
    settle();
    CHECK(self.idle() == (self.rank != 0));
    self.common.meet(2);
    if (self.rank == 0) std::thread([&] { ok(ncclCommAbort(comm)); }).join();
    if (self.rank == 0) self.synchronize();
    self.common.meet(2);
    Result error;
    if (self.rank == 0) CHECK(ncclCommGetAsyncError(comm, &error) == kInvalidUsage);
    if (self.rank == 0) return;
    CHECK(error_of(comm) == kSuccess);
    all_reduce(self, comm, memory);
    settle();
    CHECK(!self.idle());
    ok(ncclCommAbort(comm));
  });
}

// In the order of communicators, in counts, kinds or roots.
TEST(ranks_that_differ_hang_until_all_abort) {
  for (const char* const difference : {"order", "count", "kind", "root"})
    run_ranks(2, [&](NcclRank& self) {
      Comm* const comms[] = {self.start(), self.start(true, 1)};
      const auto second = make_stream();
      auto* const memory = self.put(numbers(kFloat32, self.rank, 400));
      const bool differs = self.rank == 1;
      const std::string what = difference;
      const auto call = [&](int which) {
        Comm* const comm = comms[which];
        const auto stream = which == 0 ? self.stream : second;
        const std::size_t count = what == "count" && differs ? 101 : 100;
        if (what == "kind" && differs)
          return ncclReduce(memory, memory, count, kFloat32, kSum, 0, comm, stream);
        if (what == "root") return ncclBroadcast(memory, memory, count, kFloat32, differs, comm, stream);
        return ncclAllReduce(memory, memory, count, kFloat32, kSum, comm, stream);
      };
      if (what == "kind") {  // these connect
        ok(ncclAllReduce(memory, memory, 1, kFloat32, kSum, comms[0], self.stream));
        ok(ncclReduce(memory, memory, 1, kFloat32, kSum, 0, comms[0], self.stream));
      } else if (what == "order") {
        for (const int which : {0, 1}) ok(call(which));
        ok(cudaDeviceSynchronize());
        self.common.meet(2);
        ok(call(differs));
        settle();
        ok(call(!differs));
      }
      if (what != "order") ok(call(0));
      settle();
      settle();
      CHECK(!self.idle() || cudaStreamQuery(second) == cudaErrorNotReady);
      self.common.meet(2);
      // One after the other would hang: the first waits for the device, which waits for the second.
      if (what == "order") {
        std::thread other([&] { ok(ncclCommAbort(comms[1])); });
        ok(ncclCommAbort(comms[0]));
        other.join();
      } else {
        ok(ncclGroupStart());
        for (Comm* const comm : comms) ok(ncclCommAbort(comm));
        ok(ncclGroupEnd());
      }
      ok(cudaDeviceSynchronize());
    });
}

TEST(an_asynchronous_error_leaves_the_kernel_spinning) {
  run_ranks(2, [](NcclRank& self) {
    if (self.rank == 1) ::setenv("FAKENCCL_ASYNC_ERROR", "2", 1);
    Comm* const comm = self.start();
    auto* const memory = self.put(numbers(kFloat32, self.rank, 100));
    for (int i = 0; i < 2; ++i) all_reduce(self, comm, memory);
    settle();
    CHECK(!self.idle());
    CHECK(error_of(comm) == (self.rank == 1 ? kRemoteError : kSuccess));
    if (self.rank == 1)
      CHECK(ncclAllReduce(memory, memory, 1, kFloat32, kSum, comm, self.stream) == kRemoteError);
    self.common.meet(2);
    ok(ncclCommAbort(comm));
    self.synchronize();
  });
}

TEST(a_nonblocking_communicator_is_in_progress_for_a_while) {
  run_ranks(2, [](NcclRank& self) {
    ::setenv("FAKENCCL_IN_PROGRESS", "200", 1);
    Comm* const comm = self.start(false);
    auto* const memory = self.put(numbers(kFloat32, self.rank, 100));
    int in_progress = 0;
    for (int i = 0; i < 6; ++i) {
      const Result result = ncclAllReduce(memory, memory, 100, kFloat32, kMax, comm, self.stream);
      if (result == kInProgress) {
        ++in_progress;
        CHECK(self.idle() && error_of(comm) == kInProgress);
        CHECK(ncclAllReduce(memory, memory, 1, kFloat32, kMax, comm, self.stream) == kInvalidUsage);
      } else {
        ok(result);
      }
      finish(comm);
      self.synchronize();
    }
    CHECK(in_progress == 2);
    check(kFloat32, memory, reduced(kFloat32, kMax, 2, 100));
    ok(ncclCommDestroy(comm));
  });
}

TEST(a_start_fails_as_asked_for_and_for_invalid_parameters) {
  run_ranks(2, [](NcclRank& self) {
    ::setenv("FAKENCCL_INIT_FAILS", "1", 1);
    Comm* comm = nullptr;
    Config config;
    if (self.rank == 0) ok(ncclGetUniqueId(&self.common.data.ids[0]));
    self.common.meet(2);
    const auto start = [&] {
      return ncclCommInitRankConfig(&comm, 2, self.common.data.ids[0], self.rank, &config);
    };
    config.magic = 1;
    CHECK(start() == kInvalidArgument);
    config.magic = Config().magic;
    config.blocking = 2;
    CHECK(start() == kInvalidArgument);
    config.blocking = 0;
    CHECK(start() == kInProgress);
    settle();
    while (self.rank == 1 && error_of(comm) == kInProgress) settle();
    CHECK(error_of(comm) == (self.rank == 1 ? fakenccl::kSystemError : kInProgress));
    ok(ncclCommAbort(comm));
  });
  run_ranks(2, [](NcclRank& self) {  // on one device
    ok(cudaSetDevice(0));
    Comm* comm = nullptr;
    if (self.rank == 0) ok(ncclGetUniqueId(&self.common.data.ids[0]));
    self.common.meet(2);
    CHECK(ncclCommInitRankConfig(&comm, 2, self.common.data.ids[0], self.rank, nullptr) == kInvalidUsage);
    CHECK(!comm);
  });
}

TEST(calls_connect_once_for_each_kind_and_size) {
  for (const bool at_start : {false, true})
    run_ranks(2, [&](NcclRank& self) {
      if (at_start) ::setenv("NCCL_RUNTIME_CONNECT", "0", 1);
      Comm* const comm = self.start();
      const auto connects = [] { return fakenccl_count("connects"); };
      CHECK(connects() == (at_start ? 15 : 0));
      auto* const memory = self.put(numbers(kFloat32, self.rank, 100'000));
      for (const std::size_t count : {1u, 16'384u, 16'385u, 100'000u}) all_reduce(self, comm, memory, count);
      CHECK(connects() == (at_start ? 15 : 2));
      CHECK(fakenccl_count("ncclAllReduce") == 4 && fakenccl_count("ncclReduce") == 0);
      for (int i = 0; i < 2; ++i)
        ok(self.rank ? ncclRecv(memory, 1, kInt8, 0, comm, self.stream)
                     : ncclSend(memory, 1, kInt8, 1, comm, self.stream));
      CHECK(connects() == (at_start ? 16 : 3));
      ok(ncclCommDestroy(comm));
    });
}

TEST(calls_that_nccl_forbids_end_the_process) {
  expect_lone_fault("connects while its stream is captured", [](NcclRank& self, Comm* comm) {
    auto* const memory = self.put(numbers(kFloat32, 0, 100));
    ok(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeRelaxed));
    all_reduce(self, comm, memory);
  });
  expect_lone_fault("two threads", [](NcclRank& self, Comm* comm) {
    auto* const memory = self.put(numbers(kFloat32, 0, 100));
    ok(ncclGroupStart());
    all_reduce(self, comm, memory);
    std::thread([&] { all_reduce(self, comm, memory); }).join();
  });
  expect_lone_fault("overlap", [](NcclRank& self, Comm* comm) {
    auto* const memory = self.put(numbers(kFloat32, 0, 200));
    ok(ncclAllReduce(memory, memory + 4, 100, kFloat32, kSum, comm, self.stream));
  });
  expect_lone_fault("not CUDA's", [](NcclRank& self, Comm* comm) {
    Bytes memory(400);
    all_reduce(self, comm, memory.data());
  });
  expect_lone_fault("twice", [](NcclRank&, Comm* comm) {
    ok(ncclCommAbort(comm));
    ncclCommAbort(comm);
  });
  expect_lone_fault("was destroyed", [](NcclRank& self, Comm* comm) {
    auto* const memory = self.put(numbers(kFloat32, 0, 100));
    all_reduce(self, comm, memory);
    ok(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeRelaxed));
    all_reduce(self, comm, memory);
    const auto exec = end_capture(self.stream);
    ok(ncclCommDestroy(comm));
    ok(cudaGraphLaunch(exec, self.stream));
    self.synchronize();
  });
}

UNIT_MAIN()
