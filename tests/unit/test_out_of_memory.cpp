// Every allocation of the engine fails once, on the progress thread and on the issuing thread: each operation
// completes or fails, each Future completes, and the process continues.
#include <pthread.h>

#include <new>

#include "device/host/isa.hpp"
#include "diagnostics/flight_writer.hpp"
#include "engine_world.hpp"

using namespace engine_tests;

namespace {

enum class Where { Nowhere, Progress, Caller };

// The failing allocation, counted on the threads of `where`, and the number of later ones that fail too.
std::atomic<Where> where{Where::Nowhere};
std::atomic<int> countdown{-1};
std::atomic<int> then_fail{0};
std::atomic<bool> struck{false};
thread_local bool is_caller = false;

bool on_the_spot() {
  switch (where.load(std::memory_order_relaxed)) {
    case Where::Nowhere:
      return false;
    case Where::Caller:
      return is_caller;
    case Where::Progress:
      char name[16];
      return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
             !std::strcmp(name, "mpigdr-progress");
  }
  return false;
}

bool fails() {
  if (!on_the_spot()) return false;
  const int left = countdown.fetch_sub(1, std::memory_order_relaxed);
  if (left > 0 || left < -then_fail.load(std::memory_order_relaxed)) return false;
  struck.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

struct Seen {
  bool refused = false;  // issue() threw
  std::string text;      // of the error, or ""
};

// Runs three background operations of rank 0 while the k-th allocation and the `more` after it fail.
Seen run(Where spot, int k, int more) {
  EngineOptions engine;
  engine.observers = {std::make_shared<FlightWriter>(std::make_shared<FlightLog>(16), FlightWriterOptions{})};
  // Leaked like its operations, which use its memory.
  World& world = *new World(
      2, {.engine = engine, .group = {"test", 1s, 32}, .env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "ring"}})});
  Seen seen;
  std::vector<OperationPtr> peers, own;
  for (int i = 0; i < 3; ++i) peers.push_back(start(world, 1, unfreed(5000)));
  std::vector<std::vector<float>*> data;
  for (int i = 0; i < 3; ++i) data.push_back(&unfreed(5000));
  auto completed = std::make_shared<std::atomic<int>>(0);
  int expected = 0;
  IssueOptions prepared;
  prepared.name = "all_reduce";
  prepared.detail.text = "float32[5000] op=sum, a text that is too long for its place";
  struck.store(false);
  then_fail.store(more);
  countdown.store(k);
  where.store(spot);
  is_caller = true;
  for (int i = 0; i < 3; ++i) {
    try {
      own.push_back(start(world, 0, *data[i], prepared));
    } catch (const Error& e) {
      seen.refused = true;
      seen.text = e.what();
      continue;
    } catch (const std::bad_alloc&) {
      seen.refused = true;  // the test itself could not make the call
      continue;
    }
    try {
      own.back()->on_finished([completed] { completed->fetch_add(1); });
      ++expected;
    } catch (const std::bad_alloc&) {
    }
  }
  if (spot == Where::Caller) where.store(Where::Nowhere);
  is_caller = false;
  // No thread waits, so the progress thread carries them.
  const auto until = std::chrono::steady_clock::now() + 20s;
  const auto over = [&] {
    return completed->load() == expected &&
           std::all_of(own.begin(), own.end(), [](const OperationPtr& op) { return op->finished(); });
  };
  while (!over() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(200us);
  where.store(Where::Nowhere);
  CHECK(over());
  for (Rank& rank : world.ranks) rank.engine->shutdown();
  for (const OperationPtr& op : own) {
    if (!op->error()) continue;
    try {
      std::rethrow_exception(op->error());
    } catch (const Error& e) {
      if (seen.text.empty()) seen.text = e.what();
    }
  }
  for (std::size_t i = 0; i < data.size() && seen.text.empty() && !seen.refused; ++i)
    CHECK(std::all_of(data[i]->begin(), data[i]->end(), [](float x) { return x == 2.0f; }));
  return seen;
}

// Runs until allocation k no longer happens; returns how many failures had an effect.
int every_one(Where spot, int more) {
  // Another thread would repeat a failed initialisation, which ThreadSanitizer takes for a race.
  static_cast<void>(host::selected_isa());
  int felt = 0, untouched = 0;
  for (int k = 0; untouched < 3 && k < 2000; ++k) {
    const Seen seen = run(spot, k, more);
    untouched = struck.load() ? 0 : untouched + 1;
    if (seen.text.empty()) continue;
    ++felt;
    if (seen.text.find("memory") == std::string::npos && seen.text.find("bad_alloc") == std::string::npos &&
        seen.text.find("timed out") == std::string::npos)
      throw std::runtime_error("allocation " + std::to_string(k) + ": " + seen.text);
  }
  return felt;
}

}  // namespace

TEST(each_allocation_of_the_progress_thread_fails) { CHECK(every_one(Where::Progress, 0) > 0); }

TEST(each_allocation_of_the_progress_thread_and_all_after_it_fail) {
  CHECK(every_one(Where::Progress, 1 << 30) > 0);
}

TEST(each_allocation_of_the_issuing_thread_fails) { CHECK(every_one(Where::Caller, 0) > 0); }

TEST(a_refused_operation_names_itself_and_fails_its_group) {
  World& world = *new World(2, {.env = env_of({{"MPI_GDR_ALLREDUCE_ALGO", "ring"}})});
  float number = 0;
  // More than any address space: the allocator fails on every machine.
  const CollectiveCall call{
      {Collective::ReduceScatter, 0, 2, 0, std::uint64_t{1} << 55, DataType::Float32}, &number, &number};
  IssueOptions options;
  options.name = "reduce_scatter";
  options.detail.text = "float32[much]";
  CHECK_THROWS(world.ranks[0].group->issue({call}, std::move(options)), NoMemory,
               "reduce_scatter float32[much]: no memory for");
  CHECK(world.ranks[0].group->failed());
  auto& data = unfreed(10);
  CHECK_THROWS(start(world, 0, data), Error,
               "the group failed earlier: reduce_scatter float32[much]: no memory for");
}

// Lets the sanitizers' malloc return null, as malloc does.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1:detect_leaks=0";  // failed operations are leaked on purpose
}

UNIT_MAIN()
