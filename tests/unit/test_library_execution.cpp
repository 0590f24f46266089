// Collectives that NCCL runs, through Group and Engine, on the software NCCL (tests/fakecuda/nccl).
#include "device_world.hpp"
#include "transport/nccl/communicator.hpp"

#define FUNCTION(result, name, ...) extern "C" result nccl##name(__VA_ARGS__);
namespace mpi_gdr::nccl {
MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
}
#undef FUNCTION

using namespace engine_tests;

namespace {

nccl::Library library() {
  nccl::Library all;
#define FUNCTION(result, name, ...) all.name = nccl::nccl##name;
  MPI_GDR_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return all;
}

// As MpiBackend::share_library(): ranks on one node, each with a device.
class Node {
 public:
  explicit Node(int size, const nccl::Library& library = default_library(), WorldOptions options = {})
      : world(size, patient(std::move(options))), gpus(make_gpus(size)), library_(library) {
    CHECK(library_.GetUniqueId(&id_) == nccl::kSuccess);
    for (int r = 0; r < size; ++r)
      flags_.push_back(std::make_unique<ipc::NodeFlags>(r, size, std::vector<int>{}));
    for (const auto& flags : flags_)
      for (int r = 0; r < size; ++r) CHECK(flags->attach(r, flags_[static_cast<std::size_t>(r)]->ticket()));
  }
  // The warm-up moves 32 MiB.
  std::shared_ptr<nccl::Communicator> connect(int r, bool warm_up = false) {
    const auto deadline = std::chrono::steady_clock::now() + 300s;
    gpu(r).device.enter_thread();
    auto made = nccl::Communicator::make(library_, gpu(r).device, id_,
                                         std::move(flags_[static_cast<std::size_t>(r)]), deadline);
    if (warm_up) made->warm_up(deadline);
    world.ranks[r].group->share_library(made);
    return made;
  }
  Gpu& gpu(int r) { return *gpus[static_cast<std::size_t>(r)]; }
  static const nccl::Library& default_library() {
    static const nccl::Library all = library();
    return all;
  }

  static WorldOptions patient(WorldOptions options) {
    options.group.timeout = 300s;
    return options;
  }
  World world;
  std::vector<Gpu*> gpus;

 private:
  const nccl::Library& library_;
  nccl::UniqueId id_{};
  std::vector<std::unique_ptr<ipc::NodeFlags>> flags_;
};

// An all_reduce in place of device memory.
struct Sum {
  static constexpr std::size_t kCount = 1000;
  Sum(Node& node, int r, float value, std::optional<std::chrono::nanoseconds> timeout = {})
      : gpu(node.gpu(r)) {
    data = static_cast<float*>(gpu.device.allocate(kCount * sizeof(float)));
    const std::vector<float> source(kCount, value);
    gpu.caller->copy(data, source.data(), kCount * sizeof(float));
    gpu.caller->synchronize();
    IssueOptions options{{.name = "all_reduce"}, Channel::Accelerator, timeout};
    StreamTarget target = gpu.target(true);
    options.stream = &target;
    CollectiveCall call{{Collective::AllReduce, r, static_cast<int>(node.gpus.size())}, data, data};
    call.spec.count = kCount;
    call.spec.dtype = DataType::Float32;
    operation = node.world.ranks[r].group->issue({call}, std::move(options));
  }
  bool is(float value) const {
    std::vector<float> result(kCount);
    gpu.device.order(*gpu.queues[0], *gpu.caller);
    gpu.caller->copy(result.data(), data, kCount * sizeof(float));
    gpu.caller->synchronize();
    return std::ranges::all_of(result, [&](float x) { return x == value; });
  }
  Gpu& gpu;
  float* data;
  OperationPtr operation;
};

std::atomic<bool> broken{false};
nccl::Result report_error(nccl::Comm* comm, nccl::Result* result) {
  const nccl::Result asked = nccl::ncclCommGetAsyncError(comm, result);
  if (broken.load()) *result = nccl::kRemoteError;
  return asked;
}

}  // namespace

TEST(sums_are_right_and_the_algorithm_is_named) {
  for (const int size : {2, 3}) {
    Node node(size);
    node.world.run([&](int r) {
      node.connect(r, size == 2 && !unit::kSanitized);
      for (int i = 0; i < 5; ++i) {
        Sum one(node, r, static_cast<float>(r + i)), two(node, r, 2);
        CHECK(one.operation->info().algorithm == "nccl");
        CHECK(one.is(static_cast<float>(size * i + size * (size - 1) / 2)) &&
              two.is(static_cast<float>(2 * size)));
        node.world.ranks[r].engine->wait(*two.operation);
      }
    });
    node.world.run([&](int r) { node.world.ranks[r].group->share_library(nullptr); });
    node.world.close();
  }
}

TEST(a_rank_that_does_not_call_is_named_and_the_device_goes_on) {
  Node node(3);
  node.world.run([&](int r) {
    node.connect(r);
    Sum sum(node, r, 1);
    CHECK(sum.is(3));
    node.world.ranks[r].engine->wait(*sum.operation);
  });
  std::atomic<int> timed_out{0}, told{0};
  node.world.run([&](int r) {
    if (r == 2) return;
    try {
      Sum sum(node, r, 1, 500ms);
      node.world.ranks[r].engine->wait(*sum.operation);
    } catch (const Error& e) {
      const std::string text = e.what();
      timed_out += text.find("timed out") != text.npos && text.find("waiting for rank 2") != text.npos;
      told += text.find("has abandoned") != text.npos;
    }
    node.gpu(r).queues[0]->synchronize();
    CHECK(node.world.ranks[r].group->failed());
  });
  CHECK(timed_out >= 1 && timed_out + told == 2);
}

TEST(an_error_of_nccl_fails_the_group) {
  nccl::Library& breaks = *new nccl::Library(library());
  breaks.CommGetAsyncError = report_error;
  Node node(2, breaks);
  node.world.run([&](int r) {
    const auto made = node.connect(r);
    Sum sum(node, r, 1);
    CHECK(sum.is(2) && made->error().empty());
    node.world.ranks[r].engine->wait(*sum.operation);
  });
  broken = true;
  node.world.run([&](int r) {
    if (r == 1) return;
    Sum sum(node, r, 1);
    CHECK_THROWS(node.world.ranks[r].engine->wait(*sum.operation), Error, "NCCL reports: ");
    node.gpu(r).queues[0]->synchronize();
  });
  broken = false;
}

TEST(an_abort_beside_calls_ends_them_all) {
  for (int turn = 0; turn < (unit::kSanitized ? 3 : 10); ++turn) {
    Node node(2);
    std::vector<std::shared_ptr<nccl::Communicator>> made(2);
    node.world.run([&](int r) { made[static_cast<std::size_t>(r)] = node.connect(r); });
    node.world.run([&](int r) {
      nccl::Communicator& mine = *made[static_cast<std::size_t>(r)];
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * turn));
        mine.abort();
      });
      try {
        for (int i = 0; i < 50; ++i) Sum(node, r, 1);
      } catch (const Error&) {
      }
      other.join();
      node.world.ranks[r].engine->abort(*node.world.ranks[r].group, "the test ends");
      node.gpu(r).queues[0]->synchronize();
      CHECK(!mine.error().empty());
    });
  }
}

TEST(a_refused_launch_fails_the_group_on_all_ranks) {
  Node node(2);
  node.world.run([&](int r) {
    node.connect(r);
    Sum(node, r, 1).is(2);
  });
  node.world.run([&](int r) {
    if (r == 0) node.gpu(0).device.refuse_after(4);
    std::string text;
    try {
      for (int i = 0; i < 3; ++i) {
        Sum sum(node, r, 1);
        node.world.ranks[r].engine->wait(*sum.operation);
      }
    } catch (const Error& e) {
      text = e.what();
    }
    CHECK(!text.empty());
    node.gpu(r).device.refuse_after(-1);
    node.gpu(r).queues[0]->synchronize();
  });
}

UNIT_MAIN_THAT_LEAKS()
