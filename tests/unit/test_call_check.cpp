// Mismatched collectives under MPI_GDR_DEBUG=DETAIL: every rank's error names the calls of all ranks.
#include "diagnostics/call_check.hpp"
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

WorldOptions checked(std::chrono::milliseconds timeout = 30s) {
  WorldOptions options;
  options.group.timeout = timeout;
  options.engine.observers.push_back(std::make_shared<CallChecker>());
  return options;
}

CollectiveCall call_of(Collective collective, int rank, int size, std::uint64_t count,
                       DataType dtype = DataType::Float32) {
  CollectiveCall call{{collective, rank, size, 0, count, dtype}};
  if (collective == Collective::AllToAll)
    call.spec.send_counts.assign(size, count), call.spec.recv_counts.assign(size, count);
  auto& memory = *new std::vector<double>(1000, 1.0);
  call.output = memory.data();
  call.input = collective == Collective::AllToAll ? memory.data() + 500 : memory.data();
  return call;
}

// Issues `calls(rank)` on each rank and returns the errors by rank, "" where there is none.
std::vector<std::string> outcome(World& world, const std::function<std::vector<Call>(int)>& calls,
                                 const char* dtype = nullptr, Channel channel = Channel::Collective,
                                 bool background = false) {
  std::vector<std::string> errors(world.ranks.size());
  world.run([&](int r) {
    IssueOptions options;
    std::vector<Call> issued = calls(r);
    options.name = name(std::get<CollectiveCall>(issued[0]).spec.collective);
    options.detail.text = "of rank " + std::to_string(r);
    options.channel = channel;
    options.background = background;
    if (dtype) options.inputs.add(r == 1 ? dtype : "float32", 10);
    errors[r] = unit::error_of(
        [&] { world.wait(r, world.ranks[r].group->issue(std::move(issued), std::move(options))); });
  });
  return errors;
}

void check_all(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
  for (const std::string& error : errors)
    for (const std::string& part : parts) CHECK_CONTAINS(error, part);
}

}  // namespace

TEST(matching_calls_run) {
  for (Channel channel : {Channel::Collective, Channel::Accelerator}) {
    WorldOptions options = checked();
    options.loopback.max_late_tests = 3;
    World world(3, options);
    for (Collective c :
         {Collective::AllReduce, Collective::Broadcast, Collective::AllToAll, Collective::Barrier})
      for (int i = 0; i < 20; ++i)  // all_to_all appends a barrier now and then
        check_all(
            outcome(
                world,
                [&](int r) { return std::vector<Call>{call_of(c, r, 3, c == Collective::Barrier ? 0 : 10)}; },
                nullptr, channel, i % 2 == 0),
            {""});
    for (int r = 0; r < 3; ++r) CHECK(!world.ranks[r].group->failed());
    world.close();
  }
}

TEST(many_in_flight_stay_in_order) {
  World world(3, checked());
  world.run_and_close([&](int r) {
    std::vector<std::vector<float>> data(100, std::vector<float>(50, 1.0f));
    std::vector<OperationPtr> operations;
    for (auto& d : data) operations.push_back(start(world, r, d));
    for (auto& op : operations) world.wait(r, op);
    for (auto& d : data) CHECK(d[7] == 3.0f);
  });
}

TEST(operation_count_dtype_op_and_root) {
  struct Case {
    const char* what;
    std::function<CollectiveCall(int)> call;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"operation",
       [](int r) { return call_of(r == 2 ? Collective::Broadcast : Collective::AllReduce, r, 3, 10); },
       {"ranks 0, 1 called all_reduce seq=0 of rank 0", "rank 2 called broadcast seq=0 of rank 2"}},
      {"count",
       [](int r) { return call_of(Collective::AllReduce, r, 3, r == 1 ? 11 : 10); },
       {"ranks 0, 2 called all_reduce", "float32 count=10 op=sum", "rank 1 called all_reduce",
        "float32 count=11 op=sum"}},
      {"dtype",
       [](int r) {
         return call_of(Collective::AllReduce, r, 3, 10, r ? DataType::Int32 : DataType::Float32);
       },
       {"rank 0 called", "float32 count=10", "ranks 1, 2 called", "int32 count=10"}},
      {"op",
       [](int r) {
         auto call = call_of(Collective::Reduce, r, 3, 10);
         if (r == 0) call.spec.op = ReduceOp::Max;
         return call;
       },
       {"op=max", "op=sum"}},
      {"root",
       [](int r) {
         auto call = call_of(Collective::Broadcast, r, 3, 10);
         call.spec.root = r == 1 ? 1 : 0;
         return call;
       },
       {"ranks 0, 2 called broadcast", "root=0", "rank 1 called broadcast", "root=1"}},
      {"barrier",
       [](int r) { return call_of(r ? Collective::AllReduce : Collective::Barrier, r, 3, r ? 10 : 0); },
       {"rank 0 called barrier", "ranks 1, 2 called all_reduce"}}};
  for (const Case& c : cases) {
    World world(3, checked());
    const auto errors = outcome(world, [&](int r) { return std::vector<Call>{c.call(r)}; });
    check_all(errors, c.parts);
    check_all(errors, {"the ranks called different collectives: ", "; rank"});
    for (int r = 0; r < 3; ++r) CHECK(world.ranks[r].group->failed());
  }
}

TEST(dtypes_of_moved_data) {
  World world(3, checked());
  check_all(
      outcome(
          world,
          [](int r) { return std::vector<Call>{call_of(Collective::Broadcast, r, 3, 40, DataType::UInt8)}; },
          "int32"),
      {"ranks 0, 2 called", "float32 bytes=40", "rank 1 called", "int32 bytes=40"});
}

TEST(splits_of_all_to_all) {
  World world(3, checked());
  const auto errors = outcome(world, [](int r) {
    auto call = call_of(Collective::AllToAll, r, 3, 4);
    if (r == 1) call.spec.send_counts[2] = 3;
    return std::vector<Call>{call};
  });
  check_all(errors, {"rank 1 sends 12 bytes to rank 2, which expects 16 bytes from it"});
  for (const auto& e : errors)
    CHECK(e.find("sends") == e.rfind("sends"));  // once, though two ranks notice it
}

TEST(coalesced_calls) {
  const auto calls = [](int count, int different) {
    return [=](int r) {
      std::vector<Call> calls;
      for (int i = 0; i < count; ++i)
        calls.push_back(call_of(Collective::AllReduce, r, 3, r == 2 && i == different ? 7 : 5));
      return calls;
    };
  };
  {
    World world(3, checked());
    check_all(outcome(world, calls(5, 3), nullptr, Channel::Accelerator),
              {"ranks 0, 1 called", "(call 4 of 5: all_reduce float32 count=5 op=sum)",
               "(call 4 of 5: all_reduce float32 count=7 op=sum)"});
  }
  {
    World world(3, checked());  // beyond what a header has room for
    check_all(outcome(world, calls(20, 18)), {"rank 2 called", "(20 calls)"});
  }
  World world(3, checked());
  check_all(outcome(world, [&](int r) { return calls(r + 1, -1)(r); }),
            {"rank 0 called", "(1 call)", "rank 1 called", "(call 2 of 2", "rank 2 called", "(call 2 of 3"});
}

TEST(a_rank_that_calls_nothing_is_named) {
  World world(4, checked(300ms));
  std::vector<std::string> errors(4);
  world.run([&](int r) {
    if (r == 2) return;
    errors[r] = unit::error_of([&] { world.wait(r, start(world, r, unfreed(10), foreground())); });
  });
  errors.erase(errors.begin() + 2);
  check_all(errors, {"timed out after", "; still waiting for rank 2"});
}

UNIT_MAIN_THAT_LEAKS()
