#include "collectives/collectives.hpp"

#include <limits>

#include "collectives/build.hpp"
#include "common/error.hpp"

namespace mpi_gdr {

namespace collectives {

// Writes two schedules. The ranks choose one at the start (Schedule::staged), which costs one flag.
static void adaptive(Builder zero_copy, Builder staged, ScheduleWriter& writer, const CollectiveSpec& spec,
                     const Tuning& tuning) {
  zero_copy(writer, spec, tuning);
  ScheduleWriter instead("staged");
  staged(instead, spec, tuning);
  writer.staged(instead.finish());
}

#define MESSAGES(collective, name, summary) \
  void collective##_##name(ScheduleWriter&, const CollectiveSpec&, const Tuning&);
#define ORDERED(collective, name, summary) MESSAGES(collective, name, summary)
#define NODE(collective, name, summary) MESSAGES(collective, name, summary)
#define CHAIN(collective, name, summary) MESSAGES(collective, name, summary)
#define NODES(collective, summary)
#define ADAPTIVE(collective)                                                                             \
  void collective##_adaptive(ScheduleWriter& writer, const CollectiveSpec& spec, const Tuning& tuning) { \
    adaptive(collective##_zero_copy, collective##_staged, writer, spec, tuning);                         \
  }
#define NATIVE(collective, summary)
#include "collectives/algorithms.inc"
void two_level(ScheduleWriter&, const CollectiveSpec&, const Tuning&);

}  // namespace collectives

namespace {

void validate(const CollectiveSpec& spec, const Tuning& tuning) {
  const auto expect = [&](bool condition, const auto&... parts) {
    if (!condition) fail(ErrorCode::InvalidUsage, name(spec.collective), ": ", parts...);
  };
  expect(spec.size >= 1, "size=", spec.size, ", expected at least 1");
  expect(spec.rank >= 0 && spec.rank < spec.size, "rank=", spec.rank, ", expected 0..", spec.size - 1);
  expect(spec.root >= 0 && spec.root < spec.size, "root=", spec.root, ", expected 0..", spec.size - 1);
  expect(tuning.max_lanes >= 1 && tuning.max_lanes <= kMaxLanes, "max_lanes=", tuning.max_lanes,
         ", expected 1..", kMaxLanes);
  expect(tuning.chunk_bytes >= 1, "chunk_bytes=0, expected at least 1");
  expect(tuning.leaders >= 0, "leaders=", tuning.leaders, ", expected at least 0");
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max() / 4 / item_size(spec.dtype) /
                              static_cast<std::uint64_t>(spec.size);
  expect(!spec.counts.empty() || spec.count <= limit, "count=", spec.count,
         " is too large, expected at most ", limit);
  const auto check_counts = [&](const char* argument, const std::vector<std::uint64_t>& counts) {
    expect(counts.size() == static_cast<std::size_t>(spec.size), argument, " has ", counts.size(),
           " entries, expected size=", spec.size);
    for (const std::uint64_t count : counts)
      expect(count <= limit, argument, " holds ", count, ", which is too large");
  };
  if (traits(spec.collective).input == Contents::Splits) {
    check_counts("send_counts", spec.send_counts);
    check_counts("recv_counts", spec.recv_counts);
  }
  if (spec.counts.empty()) return;
  expect(spec.collective == Collective::AllGather || spec.collective == Collective::ReduceScatter,
         "counts has ", spec.counts.size(),
         " entries, but only all_gather and reduce_scatter take a count for each rank");
  check_counts("counts", spec.counts);
}

// In a group of one the result is the (scaled) input, if any.
void write_single_rank(ScheduleWriter& writer, const CollectiveSpec& spec) {
  const std::uint64_t count = input_count(spec);
  Scale scale = Scale::None;
  if (reduces(spec.collective))
    scale = spec.op == ReduceOp::PreMulSum ? Scale::PreMul : collectives::final_scale(spec.op);
  writer.copy({Buffer::Output, 0, count}, {Buffer::Input, 0, count}, scale);
}

// A name in algorithms.inc that is no collective does not compile.
consteval Collective known(std::string_view name) { return named<Collective>(name).value(); }

}  // namespace

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = {
#define MESSAGES(collective, name, summary) \
  {known(#collective), #name, summary, collectives::collective##_##name},
#define ORDERED(collective, name, summary) \
  {known(#collective), #name, summary, collectives::collective##_##name, false, false, true},
#define NODE(collective, name, summary) \
  {known(#collective), #name, summary, collectives::collective##_##name, true, false, true},
#define CHAIN(collective, name, summary) \
  {known(#collective), #name, summary, collectives::collective##_##name, false, true, true},
#define NODES(collective, summary) \
  {known(#collective), "two_level", summary, collectives::two_level, false, true},
#define ADAPTIVE(collective)                                                                             \
  NODE(collective, adaptive,                                                                             \
       "zero_copy if the tensors of all ranks are in group memory, else staged, or whichever is faster " \
       "(MPI_GDR_ADAPT); 1 flag more")
#define NATIVE(collective, summary) {known(#collective), "native", summary, nullptr},
#include "collectives/algorithms.inc"
  };
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  return nullptr;
}

SchedulePtr Algorithm::build(const CollectiveSpec& spec, const Tuning& tuning) const {
  validate(spec, tuning);
  const bool alone = spec.size == 1;
  const bool in_staging = shared && !alone && only_through_staging(collective, spec.op);
  const Algorithm& chosen = in_staging ? *find_algorithm(collective, "staged") : *this;
  ScheduleWriter writer(chosen.name);
  if (chosen.flat() && reduces(collective)) writer.flat();
  if (alone)
    write_single_rank(writer, spec);
  else
    chosen.write(writer, spec, tuning);
  return writer.finish();
}

}  // namespace mpi_gdr
