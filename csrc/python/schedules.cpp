// The module mpi_backend._tools.schedule, for tests and commands. Invalid arguments raise ValueError.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
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

using PySlice = std::tuple<std::string, std::uint64_t, std::uint64_t, int>;  // buffer, offset, count, owner

// A self-contained step, without the index into Schedule::sources.
struct PyStep {
  std::string kind, scale;
  int peer = -1;
  std::optional<PySlice> dst;
  std::vector<PySlice> sources;
};
using PyLanes = std::vector<std::vector<std::vector<PyStep>>>;

struct PySchedule {
  CollectiveSpec spec;
  SchedulePtr schedule;
};

PySlice to_python(const Slice& slice) {
  return {std::string(name(slice.buffer)), slice.offset, slice.count, slice.owner};
}
Slice from_python(const PySlice& slice) {
  return {parse<Buffer>("buffer", std::get<0>(slice)), std::get<1>(slice), std::get<2>(slice),
          std::get<3>(slice)};
}

PyLanes lanes_of(const PySchedule& self) {
  const Schedule& schedule = *self.schedule;
  PyLanes lanes;
  for (const Lane& lane : schedule.lanes) {
    auto& rounds = lanes.emplace_back();
    for (const Round& round : schedule.rounds_of(lane)) {
      auto& steps = rounds.emplace_back();
      for (const Step& from : schedule.steps_of(round)) {
        PyStep step{std::string(name(from.kind)), std::string(name(from.scale)), from.peer, {}, {}};
        if (from.dst.count > 0) step.dst = to_python(from.dst);
        for (const Slice& source : schedule.sources_of(from)) step.sources.push_back(to_python(source));
        steps.push_back(std::move(step));
      }
    }
  }
  return lanes;
}

// Bypasses ScheduleWriter, whose checks would reject the errors with which the checker is tested.
PySchedule with_lanes(const PySchedule& self, const PyLanes& lanes) {
  Schedule schedule = *self.schedule;
  schedule.lanes.clear();
  schedule.rounds.clear();
  schedule.steps.clear();
  schedule.sources.clear();
  const auto size = [](const auto& vector) { return static_cast<std::uint32_t>(vector.size()); };
  for (const auto& rounds : lanes) {
    schedule.lanes.push_back({size(schedule.rounds), size(rounds)});
    for (const auto& steps : rounds) {
      schedule.rounds.push_back({size(schedule.steps), size(steps)});
      if (steps.empty()) throw py::value_error("with_lanes: a round without steps");
      for (const PyStep& from : steps) {
        Step step;
        step.kind = parse<StepKind>("kind", from.kind);
        step.scale = parse<Scale>("scale", from.scale);
        step.peer = from.peer;
        if (from.dst) step.dst = from_python(*from.dst);
        step.first_source = size(schedule.sources);
        step.source_count = size(from.sources);
        for (const PySlice& source : from.sources) schedule.sources.push_back(from_python(source));
        schedule.steps.push_back(step);
      }
    }
  }
  return {self.spec, std::make_shared<const Schedule>(std::move(schedule))};
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
  py::module_ m = module.def_submodule("schedule", "Schedules of collectives: build, inspect, edit, check");

  py::class_<PyStep>(m, "Step")
      .def_readwrite("kind", &PyStep::kind)
      .def_readwrite("scale", &PyStep::scale)
      .def_readwrite("peer", &PyStep::peer)
      .def_readwrite("dst", &PyStep::dst, "(buffer, offset, count, owner) or None")
      .def_readwrite("sources", &PyStep::sources, "a copy; assign the whole list to change it")
      .def("__repr__", [](const PyStep& step) {
        std::string text = "Step(" + step.kind;
        if (step.peer >= 0) text += ", peer=" + std::to_string(step.peer);
        const auto slice = [](const PySlice& s) {
          return std::get<0>(s) + "[" + std::to_string(std::get<1>(s)) + ":" +
                 std::to_string(std::get<1>(s) + std::get<2>(s)) + "]";
        };
        if (step.dst) text += ", dst=" + slice(*step.dst);
        for (const PySlice& source : step.sources) text += ", " + slice(source);
        return text + (step.scale == "none" ? ")" : ", " + step.scale + ")");
      });

  py::class_<PySchedule>(m, "Schedule")
      .def("lanes", &lanes_of, "a fresh copy: a list of lanes, each a list of rounds, each a list of Step")
      .def("with_lanes", &with_lanes, py::arg("lanes"), "the same schedule with other lanes");

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
      "select",
      [](const std::string& collective, int size, std::uint64_t count, const std::string& dtype,
         const std::string& op, bool native_exact, const std::string& reach) {
        CollectiveSpec spec;
        spec.collective = parse_collective(collective);
        spec.size = size;
        spec.count = count;
        spec.dtype = parse_dtype(dtype);
        spec.op = parse_op(op);
        return std::string(select_row(spec, native_exact, parse_reach(reach)).algorithm->name);
      },
      py::arg("collective"), py::arg("size"), py::arg("count"), py::arg("dtype") = "float32",
      py::arg("op") = "sum", py::arg("native_exact") = false, py::arg("reach") = "none",
      "The choice of the built-in table. `reach` of the ranks into each other's memory: none, segments, "
      "all.");
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
