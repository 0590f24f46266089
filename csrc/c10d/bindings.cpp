// The extension module mpi_backend._C.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "bootstrap/host.hpp"
#include "bootstrap/shared_memory.hpp"
#include "c10d/backend.hpp"
#include "c10d/device_streams.hpp"
#include "c10d/errors.hpp"
#include "c10d/memory.hpp"
#include "c10d/this_job.hpp"
#include "c10d/timeouts.hpp"
#include "collectives/selection_source.hpp"
#include "common/env.hpp"
#include "device/host/isa.hpp"
#include "device/load.hpp"
#include "job/choice_cache.hpp"
#include "python/names.hpp"
#include "python/reports.hpp"
#include "transport/ipc/device_arena.hpp"
#include "transport/load.hpp"
#include "transport/nccl/library.hpp"

namespace py = pybind11;

namespace mpi_gdr::torch_binding {

namespace {

using namespace pybind11::literals;
using namespace python;

c10::intrusive_ptr<c10d::Backend> create_backend(const c10d::DistributedBackendOptions& dist,
                                                 c10::intrusive_ptr<Options> options, int world_rank,
                                                 int world_size,
                                                 c10::intrusive_ptr<c10d::Store> world_store) {
  options = options ? c10::make_intrusive<Options>(*options) : c10::make_intrusive<Options>();
  // c10d passes this default without a user's timeout.
  options->timeout = group_timeout(dist.timeout != kBackendDefaultTimeout ? dist.timeout : options->timeout);
  Job::NewGroup made =
      this_job().make_group(group_request(dist, *options, world_rank, world_size, world_store));
  return c10::make_intrusive<MpiBackend>(dist.group_rank, dist.group_size, std::move(made), options);
}

std::string text_of(const char* name, const py::object& value) {
  if (!py::isinstance<py::str>(value))
    throw py::type_error("Options: " + std::string(name) + "=" + std::string(py::repr(value)) +
                         ", expected a str");
  return py::str(value);
}

void set_selection(Options& options, const py::object& rows) {
  const std::string text = text_of("selection", rows);
  with_torch_errors([&] { (void)parse_overrides(text, "Options.selection"); });
  options.selection = text;
}

void set_bits(Options& options, const py::object& bits) {
  const std::string text = text_of("bits", bits);
  if (!text.empty()) with_torch_errors([&] { (void)parse_bits("Options.bits", text); });
  options.bits = text;
}

c10::intrusive_ptr<Options> make_options(const py::object& timeout, const py::object& selection,
                                         const py::object& bits) {
  auto options = c10::make_intrusive<Options>();
  if (!timeout.is_none()) {
    // pybind11 also accepts a float.
    if (!py::isinstance(timeout, py::module_::import("datetime").attr("timedelta")))
      throw py::type_error("Options: timeout=" + std::string(py::repr(timeout)) +
                           ", expected a datetime.timedelta");
    options->timeout =
        with_torch_errors([&] { return group_timeout(timeout.cast<std::chrono::milliseconds>()); });
  }
  set_selection(*options, selection);
  set_bits(*options, bits);
  return options;
}

std::string repr_of(const py::object& options) {
  return "mpi_backend.Options(timeout=" + std::string(py::repr(options.attr("_timeout"))) +
         ", selection=" + std::string(py::repr(options.attr("selection"))) +
         ", bits=" + std::string(py::repr(options.attr("bits"))) + ")";
}

Report<"MpiInfo"> mpi_info() {
  const NetworkInfo info = network().info();
  return Report<"MpiInfo">(
      "library"_a = info.version, "library_path"_a = info.path, "abi"_a = info.abi,
      "mpi_version"_a = info.standard, "device"_a = info.device, "thread_level"_a = info.thread_level,
      "processor"_a = info.processor, "initialized_by"_a = info.initialized_by,
      "bootstrap"_a = info.bootstrap, "rank"_a = info.rank, "size"_a = info.size, "node"_a = info.node,
      "nodes"_a = info.nodes, "rank_on_node"_a = info.rank_on_node, "ranks_on_node"_a = info.ranks_on_node);
}

std::string nccl_found() {  // "2.27.5", or why there is none
  std::string why;
  const nccl::Library* const library = nccl::find_library(why);
  return library ? nccl::version_text(library->version) : why;
}

Report<"CudaInfo"> cuda_info() {  // starts no device
  std::string path, problem, built;
  std::vector<std::string> devices;
  try {
    const py::gil_scoped_release no_gil;
    const LoadedLibrary& loaded = *loaded_library("cuda");
    path = loaded.path;
    problem = loaded.why;
    if (loaded.devices) {
      built = loaded.devices->built();
      const int count = loaded.devices->device_count(problem);
      for (int i = 0; i < count; ++i) devices.push_back(loaded.devices->describe(i));
    }
  } catch (const Error& error) {  // MPI_GDR_CUDA=on without CUDA
    if (error.code() == ErrorCode::InvalidUsage) throw;
    problem = error.what();
  }
  const auto or_none = [](const std::string& text) {
    return text.empty() ? py::object(py::none()) : py::object(py::str(text));
  };
  return Report<"CudaInfo">("library"_a = or_none(path), "built"_a = or_none(built), "devices"_a = devices,
                            "problem"_a = or_none(problem), "queues"_a = or_none(shortage_of_queues()),
                            "nccl"_a = nccl_found());
}

Reports<"EnvVariable"> env_table() {
  Reports<"EnvVariable"> table;
  for (const Env::Variable& v : Env::get().table())
    table.append(py::dict("name"_a = v.name, "default"_a = v.default_value, "allowed"_a = v.allowed,
                          "description"_a = v.description, "value"_a = v.value,
                          "source"_a = v.from_environment ? "environment" : "default",
                          "expert"_a = v.audience == Env::Audience::Experts,
                          "equal"_a = v.ranks != Env::Ranks::Any));
  return table;
}

Reports<"EnvProblem"> env_problems() {
  Reports<"EnvProblem"> problems;
  const auto add = [&](const std::string& name, const std::string& message, bool bad) {
    problems.append(py::dict(
        "name"_a = name, "message"_a = py::bytes(message).attr("decode")("utf-8", "replace"), "bad"_a = bad));
  };
  const Env defaults([](const char*) { return nullptr; });
  for (const Env::Variable& known : defaults.table()) try {
      (void)Env([&](const char* name) { return known.name == name ? std::getenv(name) : nullptr; });
    } catch (const Error& error) {
      add(known.name, error.what(), true);
    }
  for (const auto& [unknown, nearest] : Env::unknown_variables(environ))
    add(unknown, unknown + " is not a variable of mpi-gdr; did you mean " + nearest + "?", false);
  return problems;
}

// Moved data is counted in bytes.
std::string algorithm_of(MpiBackend& backend, const std::string& collective, std::uint64_t count,
                         const std::string& dtype, const std::string& op) {
  CollectiveSpec spec;
  spec.collective = parse_collective(collective);
  spec.size = backend.getSize();
  const DataType type = parse_dtype(dtype);
  spec.dtype = reduces(spec.collective) ? type : DataType::UInt8;
  spec.count = reduces(spec.collective) ? count : count * item_size(type);
  spec.op = reduces(spec.collective) ? parse_op(op) : ReduceOp::Sum;
  return backend.algorithm(spec);
}

Reports<"SelectionRange"> selection_of(int size, const std::string& nodes) {
  if (nodes != "one" && nodes != "several" && nodes != "one per rank")
    fail(ErrorCode::InvalidUsage, "nodes=", nodes, ": expected one, several or one per rank");
  Reports<"SelectionRange"> rows;
  for (const SelectionRange& range :
       selection_ranges(size, nodes == "one" ? Reach::All : Reach::None, load_selection(Env::get()).table,
                        DataType::Float32, nodes == "several")) {
    Report<"SelectionRange"> row = report(range);
    if (range.to_bytes == kUnlimited) row["to_bytes"] = py::none();
    rows.append(row);
  }
  return rows;
}

Reports<"MeasuredChoice"> as_reports(const MeasuredChoices& choices) {
  Reports<"MeasuredChoice"> rows;
  for (const RivalChoices::Report& choice : choices) {
    Report<"MeasuredChoice"> row("collective"_a = std::string(name(choice.collective)),
                                 "from_bytes"_a = choice.from_bytes, "to_bytes"_a = choice.to_bytes,
                                 "group_memory"_a = choice.mapped, "algorithm"_a = rival_name(choice.rival),
                                 "speedup"_a = py::none());
    if (choice.speedup > 0) row["speedup"] = choice.speedup;
    rows.append(row);
  }
  return rows;
}

std::pair<std::string, Reports<"ChoiceFile">> remembered_choices() {
  const ChoiceCache cache;
  Reports<"ChoiceFile"> files;
  for (const ChoiceCache::File& file : cache.all())
    files.append(Report<"ChoiceFile">("path"_a = file.path, "key"_a = file.key, "problem"_a = file.problem,
                                      "choices"_a = as_reports(file.choices)));
  return {cache.folder(), files};
}

// Each row and its origin.
std::vector<std::pair<std::string, std::string>> selection_rows() {
  const SelectionTable table = load_selection(Env::get()).table;
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Collective c : every<Collective>())
    for (const SelectionRow& row : table.rows(c)) rows.emplace_back(to_text(row), row.origin);
  return rows;
}

}  // namespace
}  // namespace mpi_gdr::torch_binding

PYBIND11_MODULE(_C, m) {
  using namespace mpi_gdr;
  using namespace mpi_gdr::torch_binding;
  using release = py::call_guard<py::gil_scoped_release>;
  m.doc() = "torch.distributed over MPI: the compiled part of mpi_backend.";
  m.attr("__version__") = MPI_GDR_VERSION;

  py::class_<Options, c10::intrusive_ptr<Options>, c10d::Backend::Options>(
      m, "Options", "Options of the mpi-gdr backend, for pg_options=. `_timeout`: a timedelta.")
      .def(py::init(&make_options), py::kw_only(), py::arg("timeout") = py::none(), py::arg("selection") = "",
           py::arg("bits") = "",
           "`timeout`: a timedelta, for groups that are made without the argument `timeout`.")
      .def("__repr__", &repr_of)
      .def_property(
          "selection", [](const Options& self) { return self.selection; }, &set_selection,
          "Rows of the selection table for this group, as MPI_GDR_SELECT: \"all_reduce:0-4K:flag\".")
      .def_property(
          "bits", [](const Options& self) { return self.bits; }, &set_bits,
          "As MPI_GDR_BITS, for this group: \"any\", \"order\" or \"exact\"; empty: as that variable.")
      .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
      .def(
          "__deepcopy__",
          [](const Options& self, const py::typing::Dict<py::object, py::object>&) {
            return c10::make_intrusive<Options>(self);
          },
          py::arg("memo"));

  py::class_<MpiBackend, c10::intrusive_ptr<MpiBackend>, c10d::Backend>(
      m, "MpiBackend", "A process group over MPI. Made by c10d.")
      .def_property_readonly("options", &MpiBackend::options)
      .def(
          "perform_nocolor_split", [](const MpiBackend&, const at::Device&) {}, py::arg("device"),
          "Called by torch on ranks that are not in a new group. Does nothing: only members create the "
          "group.")
      .def("algorithm", &algorithm_of, py::arg("collective"), py::arg("count"), py::arg("dtype") = "float32",
           py::arg("op") = "sum",
           "The algorithm for a collective of `count` elements (of one block, if the collective has "
           "blocks).")
      .def(
          "choices", +[](const MpiBackend& backend) { return as_reports(backend.group().rival_report()); },
          "The choices of `adaptive` so far, by collective, size and memory; only the first rank of a node "
          "has the speedup over the other algorithm.")
      .def_property_readonly(
          "reach", [](const MpiBackend& b) { return std::string(name(b.group().reach())); },
          "How far its ranks reach into each other's memory: none, segments or all.")
      .def_property_readonly(
          "message_path", [](const MpiBackend& b) { return b.group().message_path(); },
          "The path of send and recv: shm (shared memory) or mpi.")
      // Some supported releases of torch do not bind this virtual.
      .def("get_error", &MpiBackend::getError,
           "torch._C._distributed_c10d.ErrorType: SUCCESS until the group fails.");

  m.def("create_backend", translating(&create_backend), py::arg("dist_backend_opts"),
        py::arg("options") = py::none(), py::arg("world_rank") = -1, py::arg("world_size") = -1,
        py::arg("world_store") = py::none(), release(),
        "The creator for torch.distributed.Backend.register_backend(extended_api=True). Initialises MPI at "
        "the first call; blocks until all members have called it. `world_*` describe the default group if "
        "another backend created it.");
  m.def("init_mpi_from_launcher", translating(+[](int rank, int size, double timeout_seconds) {
          this_job().start_from_launcher(rank, size, bounded(std::chrono::duration<double>(timeout_seconds)));
        }),
        py::arg("rank"), py::arg("size"), py::arg("timeout_seconds"), release(),
        "Initialises MPI in a process that an MPI launcher started, without a store.");
  m.def("explain_launcher_mismatch",
        translating(+[](int size) { return network().explain_launcher_mismatch(size); }), py::arg("size"),
        "Why `size` ranks cannot start MPI with their launcher alone, and the cure; \"\" if they can.");
  m.def("broadcast_bytes", translating(+[](const py::bytes& data, int root) {
          std::string text = data;
          {
            py::gil_scoped_release no_gil;
            network().broadcast(text, root);
          }
          return py::bytes(text);
        }),
        py::arg("data"), py::arg("root"),
        "Returns root's bytes on all ranks of the job. Requires that MPI is initialised; blocks.");
  m.def("remembered_choices", translating(&remembered_choices),
        "The folder of the choices that groups of earlier jobs measured, \"\" if there is none, and its "
        "files.");
  m.def("kernels", translating(+[] {
          std::vector<std::string> available;
          for (const host::Isa isa : host::available_isas()) available.emplace_back(name(isa));
          return std::pair(std::string(name(host::selected_isa())), available);
        }),
        "The instruction set of the reduction kernels, and those to choose from with MPI_GDR_SIMD.");
  m.def("node_problems", translating(+[](int ranks) {
          const auto count = static_cast<std::size_t>(ranks);
          const auto free = free_shared_memory();
          const std::string version = network().info().version;
          return std::tuple(
              explain_shared_memory_shortage(std::vector(count, 0), std::vector(count, free), version),
              free ? warning_of_shared_memory(*free, count, false) : "",
              binding_problem(usable_cpus(), ranks, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))));
        }),
        py::arg("ranks"),
        "The messages of init_process_group about this host with so many ranks: /dev/shm is too small to "
        "start, /dev/shm may be too small, this rank is bound to one processor; \"\" for each without a "
        "problem.");
  m.def(
      "finalize", [](const std::string& failure) { this_job().finalize(failure); }, py::arg("failure") = "",
      release(),
      "For atexit. Idempotent; never raises. `failure`: the uncaught exception that ends the program; if "
      "given, it neither waits for other ranks nor finalises MPI.");
  m.def("load_mpi", translating(&load_network), py::arg("path"),
        "Loads this libmpi and the library for its ABI for the life of the process; does not start MPI. "
        "Later calls have no effect. Must precede all calls that need MPI.");
  m.def("mpi_info", translating(&mpi_info), "Facts about the MPI library; never initialises it.");
  m.def("dump_flight_log", translating(+[](const std::string& path) {
          const std::shared_ptr<FlightWriter> flight = this_job().flight();
          if (!flight)
            fail(ErrorCode::InvalidUsage,
                 "dump_flight_log: there is no flight log: MPI_GDR_FLIGHT_LOG=0, or no process group yet");
          const FlightWriter::Result result =
              flight->write("dump_flight_log()", std::chrono::seconds(30), path);
          if (!result.problem.empty()) fail(ErrorCode::System, "dump_flight_log: ", result.problem);
          return result.path;
        }),
        py::arg("path") = "", release(), "Writes the flight log; returns the file's name.");
  m.def("allocate_tensor",
        translating(+[](std::int64_t count, at::ScalarType dtype, const c10::Device& device) {
          return allocate_tensor(count, at::TensorOptions().dtype(dtype).device(device));
        }),
        py::arg("count"), py::arg("dtype"), py::arg("device") = c10::Device(c10::kCPU), release(),
        "A one-dimensional tensor in group memory, uninitialised.");
  m.def(
      "device_group_memory",
      [](std::uintptr_t address) -> std::optional<std::tuple<std::size_t, std::size_t, int>> {
        const ipc::DeviceArena* const arena = ipc::DeviceArena::find(reinterpret_cast<const void*>(address));
        if (!arena) return std::nullopt;
        return std::tuple(arena->in_use(), arena->reserved(), arena->segments());
      },
      py::arg("address"),
      "For tests: the bytes in use, the bytes reserved and the number of segments of the device group "
      "memory that contains this address; None if there is none.");
  m.def(
      "use_device_library",
      [](const std::string& type, std::uintptr_t library) {
        use_device_library(type, reinterpret_cast<DeviceLibrary*>(library));
      },
      py::arg("type"), py::arg("library"),
      "For tests: the mpi_gdr::DeviceLibrary at this address serves devices of this type from now on.");
  m.def("cuda_info", translating(&cuda_info),
        "The CUDA library: `library` (its path), `built` (for what; None: it is not loaded), `devices` (a "
        "description of each), `problem` (why there is none), `nccl` (the version in this process, or why "
        "none is used). Loads the library, starts no device.");
  m.def("env_table", translating(&env_table), "All MPI_GDR_* variables with the values in force.");
  m.def("env_problems", &env_problems,
        "The MPI_GDR_* variables in the environment that have a bad value or are unknown.");
  m.def("selection_table", translating(&selection_of), py::arg("size"), py::arg("nodes"),
        "The choices of the table in force for float32 (sum) in a group of `size` ranks, by bytes. "
        "`nodes`: \"one\" (its ranks can access each other's memory), \"several\" (several ranks each) or "
        "\"one per rank\". `to_bytes` None: open; `leaders`: if the row names a number; `origin`: "
        "built-in, or the variable or line of a file.");
  m.def("selection_rows", translating(&selection_rows),
        "The table in force: (row as text, origin), in order.");
  m.def(
      "mpi4py_handle",
      [](const c10::intrusive_ptr<c10d::Backend>& backend) {
        auto* ours = dynamic_cast<MpiBackend*>(backend.get());
        if (!ours) throw py::type_error("mpi4py_handle: expected a backend made by mpi-gdr");
        return ours->mpi4py_handle();
      },
      py::arg("backend"), "Fortran handle of a communicator over the group's ranks, for MPI.Comm.f2py().");
}
