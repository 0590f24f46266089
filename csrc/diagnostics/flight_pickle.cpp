// The layout of torch's analyzer (torch/distributed/flight_recorder). It requires, beyond FlightRecorder.hpp:
//  - names "<library>:<operation>" from its lists; others fail an assertion. The library is "gloo", because
//    "nccl" would imply NCCL's use of streams.
//  - only collectives in `entries`. Messages are in `p2p_entries`, for `mpi-gdr diagnose`.
//  - states scheduled, started, completed: a failed operation keeps its state; `error` has the error.
//  - equal descriptions of a group on all ranks, in `pg_config`.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "common/host_name.hpp"
#include "common/pickle.hpp"
#include "diagnostics/flight_writer.hpp"

namespace mpi_gdr {
namespace {

constexpr const char* kFormat = "2.10";

class Dict {
 public:
  explicit Dict(PickleWriter& out) : out_(out) { out_.begin_dict(); }
  ~Dict() { out_.end_dict(); }
  void set(const char* key, std::string_view value) { out_.text(key), out_.text(value); }
  void set(const char* key, const char* value) { set(key, std::string_view(value)); }
  void set(const char* key, std::int64_t value) { out_.text(key), out_.integer(value); }
  void set(const char* key, std::uint64_t value) { set(key, static_cast<std::int64_t>(value)); }
  void set(const char* key, int value) { set(key, static_cast<std::int64_t>(value)); }
  void set(const char* key, bool value) { out_.text(key), out_.boolean(value); }
  PickleWriter& key(std::string_view key) {
    out_.text(key);
    return out_;
  }

 private:
  PickleWriter& out_;
};

// Accelerator tensors have their own sequence numbers, so the analyzer needs a group of their own.
std::string shown_name(const GroupInfo& group, Channel channel) {
  return channel == Channel::Accelerator ? group.name + ":accelerator" : group.name;
}

std::string list_text(const std::vector<int>& ranks) {
  std::string text = "[";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text + "]";
}

// Whether sizes may differ between ranks, which the analyzer would report as an error.
bool uneven(std::string_view name, const FlightEntry& entry, const GroupInfo& group) {
  const auto size = static_cast<std::int64_t>(group.members.size());
  if (name.find("gather") != name.npos && name != "gather")
    return entry.outputs.elements() != entry.inputs.elements() * size;
  if (name.find("reduce_scatter") != name.npos)
    return entry.inputs.elements() != entry.outputs.elements() * size;
  return false;
}

std::string analyzer_name(const FlightEntry& entry, const GroupInfo& group) {
  // No destructor: the writing thread may still run when the process ends.
  static constexpr auto known = std::to_array<std::string_view>(
      {"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "all_gather", "all_reduce", "_all_gather_base",
       "all_gather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_tensor_coalesced",
       "_reduce_scatter_base", "gather", "scatter", "all_to_all", "barrier", "allreduce_coalesced"});
  const std::string_view name = entry.torch_name.empty() ? entry.name : entry.torch_name;
  if (name == "all_reduce_coalesced") return "gloo:allreduce_coalesced";
  if (std::find(known.begin(), known.end(), name) == known.end() || uneven(name, entry, group))
    return "gloo:coalesced";  // matched by name only
  return "gloo:" + std::string(name);
}

template <typename Put>
void put_list(PickleWriter& out, std::size_t count, Put&& put) {
  out.begin_list();
  for (std::size_t i = 0; i < count; ++i) put(i);
  out.end_list();
}

void put_shapes(Dict& dict, const char* sizes_key, const char* dtypes_key, const TensorShapes& shapes) {
  const auto count = static_cast<std::size_t>(shapes.count());
  PickleWriter& out = dict.key(sizes_key);
  put_list(out, count, [&](int i) {
    put_list(out, shapes[i].dims, [&](std::size_t d) { out.integer(shapes.sizes(shapes[i])[d]); });
  });
  put_list(dict.key(dtypes_key), count, [&](int i) { out.text(shapes[i].dtype); });
}

const char* state(const FlightEntry& entry) {
  if (entry.ended && !entry.failed) return "completed";
  return entry.started ? "started" : "scheduled";
}

void put_time(Dict& dict, const char* key, std::int64_t time) {
  PickleWriter& out = dict.key(key);
  time ? out.integer(time) : out.none();
}

int world_rank(const GroupInfo& group, int rank) {
  return rank >= 0 && rank < static_cast<int>(group.members.size()) ? group.members[rank] : rank;
}

void put_common(Dict& dict, const FlightEntry& entry, const GroupInfo& group) {
  PickleWriter& out = dict.key("process_group");
  out.text(shown_name(group, entry.channel));
  out.text(group.description.empty() ? (group.is_default ? "default_pg" : "undefined") : group.description);
  out.pair();
  dict.set("pg_id", static_cast<std::int64_t>(entry.group));
  put_shapes(dict, "input_sizes", "input_dtypes", entry.inputs);
  put_shapes(dict, "output_sizes", "output_dtypes", entry.outputs);
  dict.set("time_created_ns", entry.created);
  dict.set("state", state(entry));
  put_time(dict, "time_discovered_started_ns", entry.started);
  put_time(dict, "time_discovered_completed_ns", entry.failed ? 0 : entry.ended);
  dict.set("retired", entry.ended != 0);
  dict.set("timeout_ms", entry.timeout / 1'000'000);
  // Keys of our own.
  dict.set("name", entry.name);
  dict.set("detail", entry.detail.str());
  dict.set("bytes", entry.bytes);
  if (!entry.failed) return;
  dict.set("error", entry.error);
  put_time(dict, "time_failed_ns", entry.ended);
  put_list(dict.key("pending_ranks"), entry.pending.size(),
           [&](std::size_t i) { out.integer(world_rank(group, entry.pending[i])); });
}

void put_entry(PickleWriter& out, const FlightEntry& entry, const GroupInfo& group, int self) {
  Dict dict(out);
  const bool message = entry.channel == Channel::PointToPoint;
  dict.set("op_id", entry.id);
  dict.set("is_p2p", message);
  if (message) {
    const int peer = world_rank(group, entry.peer);
    dict.set("source", entry.send ? self : peer);  // ranks of the world; -1: any source
    dict.set("destination", entry.send ? peer : self);
    dict.set("tag", entry.tag);
    dict.set("message", entry.sequence);
  } else {
    dict.set("record_id", entry.record);
    dict.set("collective_seq_id", entry.sequence);
    dict.set("p2p_seq_id", 0);
    dict.set("profiling_name", analyzer_name(entry, group));
    dict.set("sequences", entry.sequences);
    dict.set("algorithm", entry.algorithm);
  }
  put_common(dict, entry, group);
}

void put_groups(Dict& top, const FlightLog::Snapshot& shot) {
  std::set<std::pair<std::uint32_t, bool>> shown;
  for (std::uint32_t i = 0; i < shot.groups.size(); ++i) shown.emplace(i, false);
  for (const FlightEntry& entry : shot.entries)
    if (entry.channel == Channel::Accelerator) shown.emplace(entry.group, true);
  PickleWriter& out = top.key("pg_config");
  Dict config(out);
  for (const auto& [index, accelerator] : shown) {
    const GroupInfo& group = shot.groups[index];
    const std::string name = shown_name(group, accelerator ? Channel::Accelerator : Channel::Collective);
    config.key(name);
    Dict row(out);
    row.set("name", name);
    row.set("desc", group.is_default ? "default_pg" : "undefined");
    row.set("ranks", list_text(group.members));
    row.set("uid", group.uid + (accelerator ? ":accelerator" : ""));
    row.set("description", group.description);
  }
}

void put_status(Dict& top, const FlightLog::Snapshot& shot) {
  std::map<std::uint32_t, std::array<std::int64_t, 3>> status;  // enqueued, started, completed
  for (const FlightEntry& entry : shot.entries) {
    if (entry.channel == Channel::PointToPoint) continue;
    auto& last = status.try_emplace(entry.group, std::array<std::int64_t, 3>{-1, -1, -1}).first->second;
    const auto sequence = static_cast<std::int64_t>(entry.sequence);
    last[0] = std::max(last[0], sequence);
    if (entry.started) last[1] = std::max(last[1], sequence);
    if (entry.ended && !entry.failed) last[2] = std::max(last[2], sequence);
  }
  PickleWriter& out = top.key("pg_status");
  Dict dict(out);
  for (const auto& [group, last] : status) {
    dict.key(std::to_string(group));
    Dict row(out);
    row.set("last_enqueued_collective", last[0]);
    row.set("last_started_collective", last[1]);
    row.set("last_completed_collective", last[2]);
  }
}

}  // namespace

std::string pickle(const FlightLog::Snapshot& shot, const FlightWriterOptions& options,
                   const std::string& reason) {
  PickleWriter out;
  {
    Dict top(out);
    top.set("version", kFormat);
    top.set("comm_lib_version", "mpi-gdr " + options.version);
    put_groups(top, shot);
    put_status(top, shot);
    const auto entries = [&](const char* key, bool messages) {
      put_list(top.key(key), shot.entries.size(), [&](std::size_t i) {
        const FlightEntry& entry = shot.entries[i];
        if ((entry.channel == Channel::PointToPoint) == messages)
          put_entry(out, entry, shot.groups.at(entry.group), options.rank);
      });
    };
    entries("entries", false);
    entries("p2p_entries", true);
    top.set("backend", "mpi-gdr");
    top.set("rank", options.rank);
    top.set("world_size", options.size);
    top.set("host", host_name());
    top.set("pid", static_cast<std::int64_t>(getpid()));
    top.set("reason", reason);
    top.set("time_ns", to_nanoseconds(std::chrono::system_clock::now()));
  }
  return out.finish();
}

}  // namespace mpi_gdr
