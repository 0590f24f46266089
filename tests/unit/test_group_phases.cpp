// Collectives in phases, through Group and Engine, on devices that share memory inside each of several nodes.
#include "device_world.hpp"

using namespace engine_tests;

namespace {

constexpr std::size_t kLong = unit::kSanitized ? 3000 : 6000;  // many parts for each lane

class Nodes {
 public:
  Nodes(std::vector<int> node_of_rank, int hardware_queues, int streams)
      : topology_(std::make_shared<const Topology>(node_of_rank)), meet_(topology_->size()) {
    WorldOptions options{.env = env_of({{"MPI_GDR_CHUNK_BYTES", "256"}, {"MPI_GDR_SELECT", kTwoLevel}})};
    options.group.topology = topology_;
    world_ = std::make_unique<World>(topology_->size(), options);
    for (int node = 0; node < topology_->nodes(); ++node)
      areas_.push_back(unit::make_areas(static_cast<int>(topology_->members(node).size())));
    for (int r = 0; r < topology_->size(); ++r)
      gpus_.push_back(new Gpu(hardware_queues, static_cast<std::uint64_t>(r) + 1, 64, streams));
  }
  World& world() { return *world_; }
  Rank& rank(int r) { return world_->ranks[r]; }
  Gpu& gpu(int r) { return *gpus_[r]; }
  int size() const { return topology_->size(); }
  const Topology& topology() const { return *topology_; }
  void wait() { meet_.arrive_and_wait(); }
  // As c10d/backend_device.cpp does.
  std::shared_ptr<ipc::DeviceNode> share(int r) {
    const int place = topology_->place(r), at = topology_->node(r);
    const auto node =
        std::make_shared<ipc::DeviceNode>(gpu(r).device, place, areas_[at][place], topology_->members(at));
    node->publish();
    wait();
    std::string why;
    CHECK(node->attach(why));
    wait();
    world_->ranks[r].group->share_devices(node);
    return node;
  }

 private:
  static constexpr const char* kTwoLevel =
      "all_reduce:two_level#all_gather:two_level#reduce_scatter:two_level#broadcast:two_level";
  std::shared_ptr<const Topology> topology_;
  std::unique_ptr<World> world_;
  std::vector<Gpu*> gpus_;
  std::vector<std::vector<ipc::Areas>> areas_;  // by node and place
  std::barrier<> meet_;
};

float value(int rank, std::size_t i, int turn) {
  return static_cast<float>(rank + 1) * static_cast<float>(i % 13 + static_cast<unsigned>(turn));
}

// One call of rank r on data that the caller's queue writes just before; expect() compares the results.
class Issued {
 public:
  // `more`: together with a call of one lane by messages in the same operation.
  Issued(Nodes& nodes, int r, Collective collective, std::size_t count, int turn, bool more = false)
      : collective_(collective), turn_(turn), rank_(r), size_(nodes.size()), root_(turn % size_) {
    const std::size_t all = count * static_cast<std::size_t>(size_);
    const std::size_t sent = collective == Collective::ReduceScatter ? all : count;
    const std::size_t got = collective == Collective::AllGather ? all : count;
    for (std::size_t i = 0; i < sent; ++i) source_.push_back(value(r, i, turn));
    input_.assign(sent, -1);
    output_.assign(got, -2);
    result_.assign(got, -3);
    CollectiveCall call{{collective, r, size_, root_, count, DataType::Float32}};
    const bool in_place =
        collective == Collective::Broadcast || (collective == Collective::AllReduce && turn % 2 == 1);
    call.output = output_.data();
    call.input = in_place ? output_.data() : input_.data();
    Gpu& gpu = nodes.gpu(r);
    gpu.caller->copy(const_cast<void*>(call.input), source_.data(), sent * sizeof(float));
    StreamTarget target = gpu.target(true);
    target.conclude = [&] { gpu.queues[0]->copy(result_.data(), output_.data(), got * sizeof(float)); };
    IssueOptions options{{.name = name(collective)}, Channel::Accelerator};
    options.stream = &target;
    std::vector<mpi_gdr::Call> calls = {call};
    if (more) {
      call.spec.collective = Collective::Reduce;
      call.spec.count = 1;
      call.input = source_.data();
      call.output = &reduced_;
      calls.emplace_back(call);
    }
    operation = nodes.rank(r).group->issue(std::move(calls), std::move(options));
    gpu.device.order(*gpu.queues[0], *gpu.caller);
  }
  void expect() const {
    for (std::size_t i = 0; i < result_.size(); ++i) CHECK(result_[i] == expected(i));
  }
  OperationPtr operation;

 private:
  float expected(std::size_t i) const {
    const std::size_t count = result_.size();
    if (collective_ == Collective::Broadcast) return value(root_, i, turn_);
    if (collective_ == Collective::AllGather) {
      const std::size_t each = count / static_cast<std::size_t>(size_);
      return value(static_cast<int>(i / each), i % each, turn_);
    }
    const std::size_t at =
        collective_ == Collective::ReduceScatter ? i + count * static_cast<std::size_t>(rank_) : i;
    float sum = 0;
    for (int r = 0; r < size_; ++r) sum += value(r, at, turn_);
    return sum;
  }
  const Collective collective_;
  const int turn_, rank_, size_, root_;
  std::vector<float> source_, input_, output_, result_;
  float reduced_ = 0;
};

void run_all(std::vector<int> node_of_rank, int hardware_queues, int streams) {
  Nodes nodes(std::move(node_of_rank), hardware_queues, streams);
  nodes.world().run([&](int r) {
    nodes.share(r);
    std::vector<std::unique_ptr<Issued>> calls;
    for (int turn = 0; turn < (unit::kSanitized ? 2 : 4); ++turn)
      for (const Collective collective :
           {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::Broadcast})
        for (const std::size_t count : {std::size_t{1}, kLong})
          calls.push_back(std::make_unique<Issued>(nodes, r, collective, count, turn));
    nodes.gpu(r).caller->synchronize();
    for (const auto& call : calls) call->expect();
    nodes.wait();
    nodes.rank(r).group->share_devices(nullptr);
  });
  nodes.world().close();
}

}  // namespace

TEST(results_are_right_on_any_placement) {
  for (const auto& placement : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1}, {0, 0, 0, 1, 1}, {0, 1, 2, 2, 1, 0}}) {
    if (unit::kSanitized && placement.size() > 4) break;
    run_all(placement, 3, 3);
  }
}

TEST(an_operation_ends_behind_all_of_its_calls) {
  Nodes nodes({0, 0, 1, 1}, 4, 4);
  nodes.world().run([&](int r) {
    nodes.share(r);
    for (int turn = 0; turn < (unit::kSanitized ? 4 : 10); ++turn) {
      Issued call(nodes, r, Collective::ReduceScatter, kLong, turn, true);
      nodes.gpu(r).caller->synchronize();
      call.expect();
      nodes.rank(r).engine->wait(*call.operation);
    }
    nodes.wait();
    nodes.rank(r).group->share_devices(nullptr);
  });
  nodes.world().close();
}

TEST(one_queue_is_enough) {
  run_all({0, 0, 1, 1}, 1, 1);
  run_all({0, 0, 1, 1}, 1, 4);
  run_all({0, 1, 0, 1}, 4, 2);
}

// And before the device continues, which then gives invalid results to the node's other ranks.
TEST(a_failure_notifies_the_ranks_of_the_node_at_once) {
  Nodes nodes({0, 0, 1, 1}, 3, 3);
  nodes.world().run([&](int r) {
    const auto node = nodes.share(r);
    Group& group = *nodes.rank(r).group;
    if (r == 0) group.fail_with("enough");
    nodes.wait();
    for (int place = 0; place < 2; ++place)
      CHECK(ipc::DeviceNode::concerns(node->failed(node->rank(), place), 0) == (r < 2 && place == 0));
    nodes.wait();
  });
}

// Ranks whose phase has not begun cannot blame their own node's ranks, which also wait for others.
TEST(who_keeps_others_waiting_is_named) {
  Nodes nodes({0, 0, 1, 1}, 3, 3);
  const std::vector<std::string> missing = {"rank 2", "rank 3", "rank 3"};
  nodes.world().run([&](int r) {
    nodes.share(r);
    Rank& rank = nodes.rank(r);
    if (r != 3) {
      rank.group->set_timeout(1s);
      auto& call = *new Issued(nodes, r, Collective::AllReduce, kLong, 0);  // leaked: it fails
      CHECK_THROWS(rank.engine->wait(*call.operation), Error, ("still waiting for " + missing[r]).c_str());
    }
    nodes.wait();
    nodes.gpu(r).device.synchronize();
  });
}

UNIT_MAIN_THAT_LEAKS()
