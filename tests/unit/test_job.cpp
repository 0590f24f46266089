// A job without torch and MPI: its ranks are threads, each with its own network and engine.
#include "doubles/loopback.hpp"
#include "job/job.hpp"
#include "memory_store.hpp"
#include "test.hpp"

using namespace mpi_gdr;
using unit::contains;

namespace {

class Ranks {
 public:
  explicit Ranks(int size) : networks_(make_loopback_networks(size)) {
    for (auto& network : networks_)
      jobs_.push_back(std::make_unique<Job>(*network, JobOptions{"1.0", "tests", {}}));
  }
  int size() const { return static_cast<int>(jobs_.size()); }
  Job& operator[](int rank) { return *jobs_[rank]; }
  Network& network(int rank) { return *networks_[rank]; }

  GroupRequest world(int rank, std::chrono::milliseconds timeout = 30s) const {
    GroupRequest request = of({}, rank, timeout);
    request.name = "0";
    request.is_default = true;
    request.rank = rank;
    request.members.resize(static_cast<std::size_t>(size()));
    std::iota(request.members.begin(), request.members.end(), 0);
    return request;
  }
  GroupRequest of(std::vector<int> members, int rank, std::chrono::milliseconds timeout = 30s) const {
    GroupRequest request;
    request.name = "some";
    request.job_rank = rank;
    request.job_size = size();
    request.members = std::move(members);
    for (std::size_t i = 0; i < request.members.size(); ++i)
      if (request.members[i] == rank) request.rank = static_cast<int>(i);
    request.store = [shared = shared_] { return std::make_unique<MemoryStore>(shared); };
    request.timeout = timeout;
    return request;
  }

  // Runs `body` for these ranks concurrently; returns what each has thrown, or "".
  std::vector<std::string> at_once(const std::vector<int>& ranks, const std::function<void(int)>& body) {
    std::vector<std::future<std::string>> running;
    for (const int r : ranks)
      running.push_back(std::async(std::launch::async, [&, r] { return unit::error_of([&] { body(r); }); }));
    std::vector<std::string> thrown;
    for (auto& one : running) thrown.push_back(one.get());
    return thrown;
  }

 private:
  std::vector<std::unique_ptr<Network>> networks_;
  std::shared_ptr<MemoryStore::Shared> shared_ = std::make_shared<MemoryStore::Shared>();
  std::vector<std::unique_ptr<Job>> jobs_;
};

bool none(const std::vector<std::string>& thrown) {
  for (const std::string& text : thrown) CHECK(text == "");
  return true;
}

OperationPtr begin_sum(Group& group, const std::int64_t& own, std::int64_t& sum) {
  const CollectiveSpec spec{Collective::AllReduce, group.rank(), group.size(), 0, 1, DataType::Int64};
  return group.issue({CollectiveCall{spec, &own, &sum}}, {{.name = "all_reduce"}});
}

void close(Job& job, const Job::NewGroup& made) {
  job.engine().close(*made.group);
  job.group_closed(*made.group);
}

std::int64_t sum_of(Job& job, Group& group, std::int64_t own) {
  std::int64_t sum = 0;
  job.engine().wait(*begin_sum(group, own, sum));
  return sum;
}

}  // namespace

TEST(groups_are_made_in_any_order) {
  Ranks ranks(3);
  CHECK(none(ranks.at_once({0, 1, 2}, [&](int r) {
    const Job::NewGroup world = ranks[r].make_group(ranks.world(r));
    CHECK(world.group->rank() == r && sum_of(ranks[r], *world.group, r + 1) == 6);
    const auto pair = [&](std::vector<int> members) {
      const Job::NewGroup made = ranks[r].make_group(ranks.of(members, r));
      CHECK(made.members == members && members[made.group->rank()] == r);
      CHECK(sum_of(ranks[r], *made.group, r) == members[0] + members[1]);
      close(ranks[r], made);
    };
    // Rank 0 is in both and makes them in turn; the same members again make another group.
    for (int again = 0; again < 2; ++again) {
      if (r != 2) pair({1, 0});
      if (r != 1) pair({0, 2});
    }
    close(ranks[r], world);
  })));
  CHECK(none(ranks.at_once({0, 1, 2}, [&](int r) { ranks[r].finalize(""); })));
}

TEST(threads_whose_groups_are_the_first_start_the_job_once) {
  Ranks ranks(2);
  CHECK(none(ranks.at_once({0, 1, 2, 3}, [&](int k) {
    const int r = k % 2;
    const Job::NewGroup made =
        ranks[r].make_group(ranks.of(k < 2 ? std::vector<int>{0, 1} : std::vector<int>{1, 0}, r));
    CHECK(sum_of(ranks[r], *made.group, r) == 1);
    close(ranks[r], made);
  })));
  CHECK(none(ranks.at_once({0, 1}, [&](int r) { ranks[r].finalize(""); })));
}

TEST(ranks_may_stand_in_another_order_later) {
  Ranks ranks(3);
  for (const int shift : {0, 1})
    CHECK(none(ranks.at_once({0, 1, 2}, [&](int process) {
      const int rank = (process + shift) % 3;
      Job& job = ranks[process];
      const Job::NewGroup world = job.make_group(ranks.world(rank));
      CHECK(job.membership()->rank == rank && sum_of(job, *world.group, rank) == 3);
      close(job, world);
    })));
  CHECK(none(ranks.at_once({0, 1, 2}, [&](int r) { ranks[r].finalize(""); })));
}

TEST(a_rank_that_never_comes_is_named) {
  Ranks ranks(3);
  for (const std::string& text :
       ranks.at_once({0, 1}, [&](int r) { ranks[r].make_group(ranks.world(r, 300ms)); }))
    CHECK(contains(text, name(ErrorCode::Timeout)) && contains(text, "rank(s) 2 of"));
}

TEST(what_chooses_algorithms_must_be_equal) {
  Ranks ranks(2);
  for (const std::string& text : ranks.at_once({0, 1}, [&](int r) {
         GroupRequest request = ranks.world(r);
         if (r == 1) request.selection.rows = "all_reduce:0-4K:ring";
         ranks[r].make_group(request);
       }))
    CHECK(contains(text, name(ErrorCode::Remote)) && contains(text, "different settings"));
}

TEST(a_rank_that_leaves_is_named_where_it_is_missed) {
  Ranks ranks(2);
  std::vector<Job::NewGroup> worlds(2);
  CHECK(none(ranks.at_once({0, 1}, [&](int r) {
    worlds[r] = ranks[r].make_group(ranks.world(r));
    sum_of(ranks[r], *worlds[r].group, 1);
  })));
  ranks[1].finalize("KeyError: 'step'");
  const std::vector<std::string> thrown =
      ranks.at_once({0}, [&](int r) { sum_of(ranks[r], *worlds[0].group, 1); });
  CHECK(contains(thrown[0], "rank 1") && contains(thrown[0], "KeyError: 'step'"));
  // A new group with rank 1 fails before its deadline as well.
  const std::vector<std::string> next =
      ranks.at_once({0}, [&](int r) { ranks[r].make_group(ranks.of({0, 1}, r)); });
  CHECK(contains(next[0], name(ErrorCode::Remote)) && contains(next[0], "cannot be made"));
  // Otherwise finalize() would report an ignored failure.
  ranks[0].engine().abort(*worlds[0].group, "the test is over");
  ranks[0].group_aborted(*worlds[0].group);
  ranks[0].finalize("");
}

TEST(an_operation_that_is_about_to_end_with_the_program_is_no_failure) {
  Ranks ranks(2);
  std::vector<Job::NewGroup> worlds(2);
  CHECK(none(ranks.at_once({0, 1}, [&](int r) { worlds[r] = ranks[r].make_group(ranks.world(r)); })));
  // Like an operation that only a device waits for; no pass has noticed its completion.
  auto &own = *new std::int64_t(1), &sum = *new std::int64_t(0);
  const OperationPtr last = begin_sum(*worlds[0].group, own, sum);
  auto end = std::async(std::launch::async, [&] { ranks[0].finalize(""); });
  std::this_thread::sleep_for(50ms);
  CHECK(sum_of(ranks[1], *worlds[1].group, 2) == 3);
  end.get();
  CHECK(last->finished() && !last->error() && sum == 3);
  CHECK(!ranks.network(0).failed());
  ranks[1].finalize("");
}

// The group of a lost rank is leaked on purpose: a peer may still write to its buffers.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() {
  return "detect_leaks=0";
}

int main(int argc, char** argv) {
  ::setenv("MPI_GDR_FLIGHT_LOG", "0", 1);  // no files
  return unit::run(argc, argv);
}
