// Bare MPI calls for `mpi-gdr bench`. Buffers are addresses of contiguous CPU memory owned by the caller.
#include "transport/mpi/raw/raw_mpi.hpp"

#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/error.hpp"
#include "common/own_folder.hpp"
#include "python/names.hpp"
#include "transport/load.hpp"

namespace py = pybind11;

namespace mpi_gdr::python {
namespace {

using Address = std::uintptr_t;
using Addresses = std::vector<Address>;
// The fields of RawCall, but with names for enumerators and addresses for pointers.
using PyCall = std::tuple<std::string, bool, Address, Address, std::string, std::uint64_t, std::string, int>;
using Rewrite = std::tuple<Address, Address, std::size_t>;

mpi::RawMpi& raw() {
  static mpi::RawMpi& found = []() -> mpi::RawMpi& {
    static_cast<void>(network());  // throws if none is loaded
    const std::string file = own_folder() + "libmpi_gdr_raw_" + network_name() + ".so";
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const function = library ? ::dlsym(library, mpi::kRawMpiSymbol) : nullptr;
    if (!function) fail(ErrorCode::System, "the bare calls of MPI cannot be loaded: ", ::dlerror());
    return *reinterpret_cast<mpi::RawMpiFunction>(function)();
  }();
  return found;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

mpi::RawCall raw_call(const PyCall& from) {
  const auto& [collective, in_place, input, output, dtype, count, op, root] = from;
  std::optional<Collective> kind;
  if (collective != "sendrecv") kind = parse_collective(collective);
  return {kind, in_place, pointer(input), pointer(output), count, parse_dtype(dtype), parse_op(op), root};
}

std::vector<double> time_call(const PyCall& from, int warmup, int iterations,
                              const std::optional<Rewrite>& rewrite, double timeout) {
  mpi::RawTiming timing{warmup, iterations};
  timing.timeout = milliseconds(timeout);
  if (rewrite) {
    timing.rewrite = true;
    timing.to = pointer(std::get<0>(*rewrite));
    timing.fresh = pointer(std::get<1>(*rewrite));
    timing.bytes = std::get<2>(*rewrite);
  }
  const mpi::RawCall call = raw_call(from);
  const py::gil_scoped_release no_gil;
  return raw().time_call(call, timing);
}

double time_messages(const std::string& pattern, bool first, int peer, const Addresses& outgoing,
                     const Addresses& incoming, std::size_t bytes, int warmup, int iterations,
                     double timeout) {
  if (pattern != "latency" && pattern != "bw" && pattern != "bibw")
    fail(ErrorCode::InvalidUsage, "pattern='", pattern, "', expected 'latency', 'bw' or 'bibw'");
  mpi::MessageTurn turn{pattern == "latency", pattern == "bw", first, peer, {}, {}, bytes};
  for (const Address address : outgoing) turn.outgoing.push_back(pointer(address));
  for (const Address address : incoming) turn.incoming.push_back(pointer(address));
  return raw().time_messages(peer < 0 ? nullptr : &turn, warmup, iterations, milliseconds(timeout));
}

}  // namespace

void bind_raw_mpi(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::module_ m = module.def_submodule("raw_mpi", "MPI's own collectives, bare: for the benchmark.");
  m.def(
      "explain_unsupported", [](const PyCall& call) { return raw().explain_unsupported(raw_call(call)); },
      py::arg("call"),
      "Why MPI cannot do it, or \"\". A call is (collective, in_place, input, output, dtype, count, op, "
      "root).");
  m.def("time", &time_call, py::arg("call"), py::arg("warmup"), py::arg("iterations"),
        py::arg("rewrite") = std::nullopt, py::arg("timeout_seconds") = 300.0,
        "Microseconds of each timed call on this rank. With `rewrite` = (to, from, bytes), these bytes are "
        "copied before every call, and all ranks start together; neither is timed. Ends the process if it "
        "takes longer than the timeout.");
  m.def("time_messages", &time_messages, py::arg("pattern"), py::arg("first"), py::arg("peer"),
        py::arg("outgoing"), py::arg("incoming"), py::arg("bytes"), py::arg("warmup"), py::arg("iterations"),
        py::arg("timeout_seconds") = 300.0, release(),
        "Seconds of so many turns of \"latency\", \"bw\" or \"bibw\" behind a barrier. `bytes` of each "
        "message. peer=-1: only the barrier.");
  m.def(
      "all_gather", [](const std::vector<double>& mine) { return raw().all_gather(mine); }, py::arg("mine"),
      release(), "The numbers of all ranks, one after another.");
  m.def("barrier", [] { raw().barrier(); }, release(), "MPI_Barrier over all ranks.");
  m.def(
      "start_all_reduce",
      [](Address buffer, const std::string& dtype, std::uint64_t count) {
        raw().start_all_reduce(pointer(buffer), count, parse_dtype(dtype), ReduceOp::Sum);
      },
      py::arg("buffer"), py::arg("dtype"), py::arg("count"), "MPI_Iallreduce, sum, in place. One at a time.");
  m.def(
      "test_all_reduce", [] { return raw().test_all_reduce(); },
      "MPI_Test: true if it is done, or none was started.");
}

}  // namespace mpi_gdr::python
