// Collectives that NCCL runs, through Group and Engine, on the software NCCL (tests/fakecuda/nccl).
#include <sys/wait.h>
#include <unistd.h>

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
  explicit Node(int size, const nccl::Library& library = default_library(), std::vector<Gpu*> on = {})
      : world(size, patient()), gpus(on.empty() ? make_gpus(size) : std::move(on)), library_(library) {
    const std::vector<ipc::Areas> areas = unit::make_areas(size);
    for (int r = 0; r < size; ++r) flags_.push_back(std::make_shared<ipc::NodeFlags>(r, areas[r]));
    nccl::UniqueId id{};
    CHECK(library_.GetUniqueId(&id) == nccl::kSuccess);
    std::ranges::copy(id.bytes, flags_[0]->offer(0).id.begin());
  }
  std::shared_ptr<nccl::Communicator> make(int r) {
    gpu(r).device.enter_thread();
    return nccl::Communicator::make(library_, gpu(r).device, flags_[static_cast<std::size_t>(r)]);
  }
  // The warm-up moves 32 MiB.
  std::shared_ptr<nccl::Communicator> connect(int r, bool warm_up = false) {
    const auto deadline = std::chrono::steady_clock::now() + 300s;
    auto made = make(r);
    made->connect(deadline);
    if (warm_up) made->warm_up(deadline);
    world.ranks[r].group->share_library(made);
    return made;
  }
  Gpu& gpu(int r) { return *gpus[static_cast<std::size_t>(r)]; }
  static const nccl::Library& default_library() {
    static const nccl::Library all = library();
    return all;
  }

  static WorldOptions patient() {
    WorldOptions options;
    options.group.timeout = 300s;
    return options;
  }
  World world;
  std::vector<Gpu*> gpus;

 private:
  const nccl::Library& library_;
  std::vector<std::shared_ptr<ipc::NodeFlags>> flags_;
};

// An all_reduce in place of device memory.
struct Sum {
  static constexpr std::size_t kCount = 1000;
  // `behind`: a queue whose earlier work comes first; null: none.
  Sum(Node& node, int r, float value, std::optional<std::chrono::nanoseconds> timeout = {},
      DeviceQueue* behind = nullptr)
      : gpu(node.gpu(r)) {
    data = static_cast<float*>(gpu.device.allocate(kCount * sizeof(float)));
    const std::vector<float> source(kCount, value);
    gpu.caller->copy(data, source.data(), kCount * sizeof(float));
    gpu.caller->synchronize();
    if (behind) gpu.device.order(*behind, *gpu.caller);
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

// A NCCL that does nothing, because the software NCCL would wait for the device to connect ranks.
nccl::Library idle_library() {
  nccl::Library all = library();
  all.CommInitRankConfig = [](nccl::Comm** comm, int, nccl::UniqueId, int, nccl::Config*) {
    static char any;
    *comm = reinterpret_cast<nccl::Comm*>(&any);
    return nccl::kSuccess;
  };
  all.CommAbort = all.CommDestroy = [](nccl::Comm*) { return nccl::kSuccess; };
  all.CommGetAsyncError = [](nccl::Comm*, nccl::Result* result) { return *result = nccl::kSuccess; };
  all.GroupStart = all.GroupEnd = [] { return nccl::kSuccess; };
  all.AllReduce = [](const void*, void*, std::size_t, nccl::Type, nccl::Op, nccl::Comm*, nccl::Stream) {
    return nccl::kSuccess;
  };
  return all;
}

void run_behind_aborted_work() {
  const nccl::Library& nccl = *new nccl::Library(idle_library());
  Node early(2, nccl, make_gpus(2, 32));
  Flag& late = *new Flag{0};
  early.world.run([&](int r) {
    const auto made = early.connect(r);
    Gpu& gpu = early.gpu(r);
    gpu.side->wait_flag(&late, 1);
    Sum sum(early, r, 1, 300ms, gpu.side.get());
    CHECK_THROWS(early.world.ranks[r].engine->wait(*sum.operation), Error, "");
    while (made->error().empty()) std::this_thread::sleep_for(1ms);
    // A later group gets other streams from us and has callers of its own.
    static_cast<void>(gpu.caller.release());
    gpu.caller = gpu.device.make_queue();
    for (std::size_t q = 0; q < gpu.queues.size(); ++q)
      gpu.queues[q] = gpu.owned.emplace_back(gpu.device.make_queue()).get();
  });
  Node later(2, nccl, early.gpus);
  later.world.run([&](int r) {
    later.connect(r);
    Sum sum(later, r, 1);
    CHECK(sum.is(1));
    later.world.ranks[r].engine->wait(*sum.operation);
  });
  late = 1;
}

}  // namespace

// The first test: in a process of its own, where allocations do not wait for the device.
TEST(a_later_group_does_not_wait_behind_aborted_work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("FAKECUDA_WAITS", "0", 1);
    ::alarm(100);
    try {
      run_behind_aborted_work();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    ::_exit(1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
}

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

TEST(a_rank_that_does_not_connect_is_named) {
  Node node(4);
  std::atomic<int> named{0}, told{0};
  node.world.run([&](int r) {
    const auto made = node.make(r);
    if (r == 2) return;
    try {
      made->connect(std::chrono::steady_clock::now() + 500ms);
    } catch (const Error& e) {
      const std::string text = e.what();
      named += text.find("the set-up of NCCL timed out; still waiting for rank(s) 2") != text.npos;
      told += text.find("could not set up NCCL") != text.npos;
    }
  });
  CHECK(named >= 1 && named + told == 3);
}

std::atomic<int> aborts{0};

TEST(a_failed_group_aborts_its_idle_communicator) {
  nccl::Library& counts = *new nccl::Library(library());
  counts.CommAbort = [](nccl::Comm* comm) {
    ++aborts;
    return nccl::ncclCommAbort(comm);
  };
  Node node(2, counts);
  node.world.run([&](int r) {
    std::weak_ptr<nccl::Communicator> left = node.connect(r);
    Sum sum(node, r, 1);
    CHECK(sum.is(2));
    Rank& rank = node.world.ranks[r];
    rank.engine->wait(*sum.operation);
    rank.engine->abort(*rank.group, "the test ends");
    rank.group->share_library(nullptr);
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (aborts < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  });
  CHECK(aborts == 2);
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
