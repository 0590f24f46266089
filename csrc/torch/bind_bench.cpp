// Python's view of the bare MPI calls (module mpi_backend._C.raw_mpi), for `mpi-gdr bench`. Tensors are
// contiguous and on the CPU; wrong arguments raise ValueError. All of it after init_mpi_from_launcher.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <vector>

#include "torch/errors.hpp"
#include "torch/python_names.hpp"
#include "torch/tensors.hpp"
#include "torch/timeouts.hpp"
#include "transport/mpi_library.hpp"

namespace py = pybind11;

namespace mpigdr::torch_binding {
namespace {

std::optional<Collective> parse_kind(const std::string& text) {
  if (text == "sendrecv") return std::nullopt;
  for (int c = 0; c < kCollectiveCount; ++c)
    if (text == name(static_cast<Collective>(c))) return static_cast<Collective>(c);
  fail(ErrorCode::InvalidUsage, "collective='", text, "', expected the name of a collective");
}

void check_plain(const char* what, const at::Tensor& t) {
  if (!t.is_contiguous() || !t.device().is_cpu())
    fail(ErrorCode::InvalidUsage, what, ": expected contiguous tensors on the CPU, got ", describe(t));
}

mpi::RawCall raw_call(const std::string& collective, bool in_place, const at::Tensor& input,
                      const at::Tensor& output, std::int64_t count, const std::string& op, int root) {
  check_plain("raw_mpi", input);
  check_plain("raw_mpi", output);
  mpi::RawCall call;
  call.collective = parse_kind(collective);
  call.in_place = in_place;
  call.input = input.data_ptr();
  call.output = output.data_ptr();
  call.count = static_cast<std::uint64_t>(count);
  call.dtype = data_type(input, "raw_mpi", ReduceOp::Sum);
  call.op = parse_op(op);
  call.root = root;
  return call;
}

mpi::MessageTurn message_turn(const std::string& pattern, bool first, int peer,
                              const std::vector<at::Tensor>& outgoing,
                              const std::vector<at::Tensor>& incoming) {
  if (pattern != "latency" && pattern != "bw" && pattern != "bibw")
    fail(ErrorCode::InvalidUsage, "pattern='", pattern, "', expected 'latency', 'bw' or 'bibw'");
  mpi::MessageTurn turn;
  turn.ping_pong = pattern == "latency";
  turn.reply = pattern == "bw";
  turn.first = first;
  turn.peer = peer;
  for (const auto* tensors : {&outgoing, &incoming})
    for (const at::Tensor& t : *tensors) {
      check_plain("time_messages", t);
      if (turn.bytes != 0 && t.nbytes() != turn.bytes)
        fail(ErrorCode::InvalidUsage, "time_messages: expected tensors of equal size, got ", describe(t));
      turn.bytes = t.nbytes();
    }
  for (const at::Tensor& t : outgoing) turn.outgoing.push_back(t.data_ptr());
  for (const at::Tensor& t : incoming) turn.incoming.push_back(t.data_ptr());
  return turn;
}

}  // namespace

void bind_bench(py::module_& module) {
  py::module_ m = module.def_submodule("raw_mpi", "MPI's own collectives, bare: for the benchmark.");
  m.def(
      "objection",
      translating(+[](const std::string& collective, bool in_place, const at::Tensor& input,
                      const at::Tensor& output, std::int64_t count, const std::string& op, int root) {
        return mpi::library().raw().objection(raw_call(collective, in_place, input, output, count, op, root));
      }),
      py::arg("collective"), py::arg("in_place"), py::arg("input"), py::arg("output"), py::arg("count"),
      py::arg("op"), py::arg("root"), "Why MPI cannot do it, or \"\".");
  m.def("time",
        translating(+[](const std::string& collective, bool in_place, const at::Tensor& input,
                        const at::Tensor& output, std::int64_t count, const std::string& op, int root,
                        int warmup, int iterations, const std::optional<at::Tensor>& fresh,
                        const std::optional<at::Tensor>& to, double timeout) {
          mpi::RawTiming timing{warmup, iterations};
          timing.timeout = bounded_seconds(timeout);
          if (fresh && to) {
            if (fresh->nbytes() != to->nbytes())
              fail(ErrorCode::InvalidUsage, "fresh has ", fresh->nbytes(), " bytes, expected ", to->nbytes(),
                   " as `to` has");
            timing.rewrite = true;
            timing.fresh = fresh->data_ptr();
            timing.to = to->data_ptr();
            timing.bytes = to->nbytes();
          }
          const mpi::RawCall call = raw_call(collective, in_place, input, output, count, op, root);
          py::gil_scoped_release no_gil;
          return mpi::library().raw().time_call(call, timing);
        }),
        py::arg("collective"), py::arg("in_place"), py::arg("input"), py::arg("output"), py::arg("count"),
        py::arg("op"), py::arg("root"), py::arg("warmup"), py::arg("iterations"),
        py::arg("fresh") = std::nullopt, py::arg("to") = std::nullopt, py::arg("timeout_seconds") = 300.0,
        "Microseconds of each timed call on this rank. With `fresh`, it is copied to `to` before every call, "
        "and all ranks start together; neither is timed. Ends the process if it takes longer than the "
        "timeout.");
  m.def("time_messages",
        translating(+[](const std::string& pattern, bool first, int peer,
                        const std::vector<at::Tensor>& outgoing, const std::vector<at::Tensor>& incoming,
                        int warmup, int iterations, double timeout) {
          const mpi::MessageTurn turn = message_turn(pattern, first, peer, outgoing, incoming);
          py::gil_scoped_release no_gil;
          return mpi::library().raw().time_messages(peer < 0 ? nullptr : &turn, warmup, iterations,
                                                    bounded_seconds(timeout));
        }),
        py::arg("pattern"), py::arg("first"), py::arg("peer"), py::arg("outgoing"), py::arg("incoming"),
        py::arg("warmup"), py::arg("iterations"), py::arg("timeout_seconds") = 300.0,
        "Seconds of so many turns of \"latency\", \"bw\" or \"bibw\" behind a barrier. peer=-1: only the "
        "barrier.");
  m.def("all_gather", translating(+[](const std::vector<double>& mine) {
          py::gil_scoped_release no_gil;
          return mpi::library().raw().all_gather(mine);
        }),
        py::arg("mine"), "The numbers of all ranks, one after another.");
  m.def("barrier", translating(+[] { mpi::library().raw().barrier(); }),
        py::call_guard<py::gil_scoped_release>(), "MPI_Barrier over all ranks.");
  m.def("start_all_reduce", translating(+[](const at::Tensor& tensor) {
          mpi::library().raw().start_all_reduce(tensor.data_ptr(), static_cast<std::uint64_t>(tensor.numel()),
                                                data_type(tensor, "start_all_reduce", ReduceOp::Sum),
                                                ReduceOp::Sum);
        }),
        py::arg("tensor"), "MPI_Iallreduce, sum, in place. One at a time.");
  m.def("test_all_reduce", translating(+[] { return mpi::library().raw().test_all_reduce(); }),
        "MPI_Test: true if it is done, or none was started.");
}

}  // namespace mpigdr::torch_binding
