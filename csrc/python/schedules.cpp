// The module mpi_backend._tools.schedule, for tests and commands. Invalid arguments raise ValueError.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checker/checker.hpp"
#include "collectives/selection_table.hpp"
#include "common/env.hpp"
#include "python/names.hpp"
#include "python/reports.hpp"

namespace py = pybind11;

namespace mpi_gdr::python {
namespace {

using namespace pybind11::literals;

struct PySchedule {
  CollectiveSpec spec;
  SchedulePtr schedule;
};

std::string to_text(const Slice& slice) {
  return std::string(name(slice.buffer)) +
         (slice.owner < 0 ? "" : " of rank " + std::to_string(slice.owner)) + '[' +
         std::to_string(slice.offset) + ':' + std::to_string(slice.offset + slice.count) + ']';
}

// "reduce output[0:4], sources output[0:4], scratch[0:4]"
std::string to_text(const Schedule& schedule, const Step& step) {
  std::string text(name(step.kind));
  if (step.peer >= 0) text += " peer " + std::to_string(step.peer);
  if (step.dst.count > 0) text += ' ' + to_text(step.dst);
  const char* before = ", sources ";
  for (const Slice& source : schedule.sources_of(step)) text += std::exchange(before, ", ") + to_text(source);
  return step.scale == Scale::None ? text : text + ", " + std::string(name(step.scale));
}

std::vector<std::vector<std::vector<std::string>>> lanes_of(const PySchedule& self) {
  const Schedule& schedule = *self.schedule;
  std::vector<std::vector<std::vector<std::string>>> lanes;
  for (const Lane& lane : schedule.lanes) {
    auto& rounds = lanes.emplace_back();
    for (const Round& round : schedule.rounds_of(lane)) {
      auto& steps = rounds.emplace_back();
      for (const Step& step : schedule.steps_of(round)) steps.push_back(to_text(schedule, step));
    }
  }
  return lanes;
}

PySchedule build(const std::string& collective, const std::string& algorithm, int rank, int size,
                 std::uint64_t count, const std::string& dtype, const std::string& op, int root,
                 std::uint64_t chunk_bytes, int max_lanes, std::uint64_t staging_bytes,
                 std::vector<std::uint64_t> send_counts, std::vector<std::uint64_t> recv_counts,
                 std::vector<std::uint64_t> counts) {
  CollectiveSpec spec;
  spec.collective = parse_collective(collective);
  spec.rank = rank;
  spec.size = size;
  spec.root = root;
  spec.count = count;
  spec.dtype = parse_dtype(dtype);
  spec.op = parse_op(op);
  spec.send_counts = std::move(send_counts);
  spec.recv_counts = std::move(recv_counts);
  spec.counts = std::move(counts);
  const Algorithm* found = find_algorithm(spec.collective, algorithm);
  if (!found || found->native())
    throw py::value_error("algorithm='" + algorithm + "' has no schedule for " + collective);
  return {spec, found->build(spec, {chunk_bytes, max_lanes, staging_bytes})};
}

CheckResult check_group(const std::vector<PySchedule>& group, std::optional<bool> synchronous_sends,
                        std::optional<bool> device_queue, std::optional<bool> aliased) {
  std::vector<CollectiveSpec> specs;
  std::vector<SchedulePtr> schedules;
  for (const PySchedule& member : group) {
    specs.push_back(member.spec);
    schedules.push_back(member.schedule);
  }
  const bool every_mode = !synchronous_sends && !device_queue && !aliased;
  py::gil_scoped_release release;
  if (every_mode) return check(specs, schedules);
  return check(specs, schedules,
               {synchronous_sends.value_or(false), device_queue.value_or(false),
                aliased.value_or(false) ? CheckMode::Aliased::All : CheckMode::Aliased::None});
}

}  // namespace

void bind_schedules(py::module_& module) {
  py::module_ m = module.def_submodule("schedule", "Schedules of collectives: build, inspect, check");

  py::class_<PySchedule>(m, "Schedule")
      .def("lanes", &lanes_of, "a list of lanes, each a list of rounds, each a list of steps as text");

  py::class_<CheckResult>(m, "CheckResult")
      .def_readonly("ok", &CheckResult::ok)
      .def_readonly("error", &CheckResult::error)
      .def_readonly("messages", &CheckResult::messages)
      .def_readonly("elements_sent", &CheckResult::elements_sent)
      .def_readonly("elements_reduced", &CheckResult::elements_reduced)
      .def_readonly("steps", &CheckResult::steps);

  m.def(
      "algorithms",
      [] {
        Reports<"AlgorithmInfo"> all;
        for (const Algorithm& a : algorithms())
          all.append(py::dict("collective"_a = std::string(name(a.collective)), "name"_a = a.name,
                              "native"_a = a.native(), "shared"_a = a.shared, "two_level"_a = a.two_level,
                              "ordered"_a = a.ordered, "flat"_a = a.flat(), "summary"_a = a.summary,
                              "variable"_a = Env::algorithm_variable(a.collective)));
        return all;
      },
      "All algorithms, in the order of the registry.");
  m.def("build", &build, py::arg("collective"), py::arg("algorithm"), py::arg("rank"), py::arg("size"),
        py::arg("count") = 0, py::arg("dtype") = "float32", py::arg("op") = "sum", py::arg("root") = 0,
        py::arg("chunk_bytes") = Tuning{}.chunk_bytes, py::arg("max_lanes") = Tuning{}.max_lanes,
        py::arg("staging_bytes") = Tuning{}.staging_bytes,
        py::arg("send_counts") = std::vector<std::uint64_t>{},
        py::arg("recv_counts") = std::vector<std::uint64_t>{},
        py::arg("counts") = std::vector<std::uint64_t>{},
        "The schedule of one rank. `count`: elements, of a block where the collective has blocks.");
  m.def("check", &check_group, py::arg("schedules"), py::arg("synchronous_sends") = py::none(),
        py::arg("device_queue") = py::none(), py::arg("aliased") = py::none(),
        "Checks the schedules of all ranks, in rank order. Without a mode: in every mode.");
  m.def(
      "selection_ranges",
      [](int size, const std::string& reach, const std::string& dtype, const std::string& table) {
        SelectionTable all;
        all.append(parse_table(table, "table"));
        for (const Collective c : every<Collective>()) all.append(default_table().rows(c));
        Reports<"SelectionRange"> rows;
        for (const SelectionRange& range :
             selection_ranges(size, parse_reach(reach), all, parse_dtype(dtype)))
          rows.append(report(range));
        return rows;
      },
      py::arg("size"), py::arg("reach") = "none", py::arg("dtype") = "float32", py::arg("table") = "",
      "The choices of the rows of `table`, then of the built-in ones, by bytes; `to_bytes` 2**64-1: open.");
  m.def(
      "parse_table",
      [](const std::string& text, const std::string& source) {
        std::vector<std::string> lines;
        for (const SelectionRow& row : parse_table(text, source)) lines.push_back(to_text(row));
        return lines;
      },
      py::arg("text"), py::arg("source"), "The rows of a table, each in its canonical form.");
  m.def("default_table", [] { return std::string(default_table_text()); }, "The built-in table as text.");
}

}  // namespace mpi_gdr::python
