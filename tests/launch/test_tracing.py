"""torch's profiler and MPI_GDR_TRACE compared with the calls of a job of two ranks."""

from __future__ import annotations

import collections
import itertools
import json
import pickle
from pathlib import Path

import pytest
from support.command import mpi_gdr

pytestmark = pytest.mark.warm

PROGRAM = Path(__file__).parents[1] / "support" / "tracing_program.py"
RANKS = range(2)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracing")
    done = mpi_gdr(
        "run", "-n", "2", str(PROGRAM), str(folder),
        MPI_GDR_TRACE=str(folder / "new" / "lanes.json"), MPI_GDR_FLIGHT_DIR=str(folder / "on_signal"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def load(path):
    return json.loads(path.read_text())


# {span: number of calls} of tracing_program.py.
SPANS = {
    "mpi-gdr:all_reduce": 5,
    "mpi-gdr:_all_gather_base": 1,
    "mpi-gdr:all_to_all": 1,
    "mpi-gdr:all_reduce_coalesced": 1,
    "mpi-gdr:coalesced": 1,  # batch_isend_irecv
    "mpi-gdr:barrier": 1,
}


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", ["plain", "shapes"])
def test_profiler_shows_every_call(job, rank, kind):
    events = load(job / f"{kind}{rank}.json")
    message = "mpi-gdr:recv" if rank else "mpi-gdr:send"
    expected = {**SPANS, message: 1}
    spans = [e for e in events if e["name"].startswith("mpi-gdr:") and "::" not in e["name"]]
    assert collections.Counter(e["name"] for e in spans) == expected
    assert all(e["is_async"] and e["duration"] > 0 for e in spans), spans
    # Includes the batch's members. torch's metadata name each call, as ours do.
    calls = [e for e in events if e["name"].startswith("mpi-gdr::")]
    names = collections.Counter(e["name"].split()[0] for e in calls)
    called = {name.replace(":", "::"): n for name, n in expected.items() if name != "mpi-gdr:coalesced"}
    batch = {"mpi-gdr::send": 1, "mpi-gdr::recv": 1}
    assert names == collections.Counter(called) + collections.Counter(batch)
    assert all(len(e["name"].split()) == 2 and not e["name"].endswith("unknown") for e in calls), calls
    assert sum(e["name"] == "record_param_comms" for e in events) == len(calls)
    if kind == "shapes":
        sizes = [e["shapes"] for e in spans if e["name"] == "mpi-gdr:all_reduce"]
        assert sizes == [[[n]] for n in (1000, 300_000, 16, 1000, 300_000)]


@pytest.mark.parametrize("rank", RANKS)
def test_averages_have_the_algorithms(job, rank):
    averages = load(job / f"averages{rank}.json")
    assert SPANS.items() <= averages.items()
    assert sum(n for key, n in averages.items() if key.startswith("mpi-gdr::all_reduce ")) == 5


@pytest.mark.parametrize("rank", RANKS)
def test_exported_profile_has_sizes_and_algorithms(job, rank):
    def events(kind, name):
        found = load(job / f"{kind}_trace{rank}.json")["traceEvents"]
        return [e["args"] for e in found if e["ph"] == "X" and e["name"].startswith(name)]

    second = events("plain", "record_param_comms")[1]
    assert second["Collective name"] == "allreduce" and second["dtype"] == "BFloat16"
    assert second["In msg nelems"] == second["Out msg nelems"] == 300_000
    assert second["Group size"] == 2 and second["Process Group Description"] == "the pair"
    split = events("plain", "record_param_comms")[6]
    assert split["Collective name"] == "all_to_all"
    assert json.loads(split["In split size"]) == ([6, 10] if rank else [10, 6])
    message = events("plain", "record_param_comms")[7]
    assert message["Collective name"] == ("recv" if rank else "send")
    assert message["Src Rank" if rank else "Dst Rank"] == 1 - rank
    anyone = events("anyone", "record_param_comms")[0]
    assert anyone["Collective name"] == ("recv" if rank else "send")

    for name in ("mpi-gdr:all_reduce", "mpi-gdr::all_reduce "):
        arguments = events("shapes", name)[1]
        assert arguments["Input Dims"] == [[300_000]]
        assert arguments["bytes"] == 600_000 and arguments["count"] == 300_000
        assert arguments["dtype"] == "bfloat16" and arguments["ranks"] == 2 and arguments["rank"] == rank
        assert arguments["algorithm"] not in ("", "unknown")
    names = [e["name"] for e in load(job / f"shapes_trace{rank}.json")["traceEvents"]]
    assert f"mpi-gdr::all_reduce {arguments['algorithm']}" in names


def test_operations_that_outlive_the_profiler(job):
    events = load(job / "late0.json")
    assert sum(e["name"] == "mpi-gdr:all_reduce" for e in events) == 3  # the first profiler's only
    assert sum(e["name"] == "mpi-gdr:barrier" for e in events) == 1


@pytest.mark.parametrize("rank", RANKS)
def test_training_under_the_profiler(job, rank):
    spans = [e for e in load(job / f"training{rank}.json") if e["name"] == "mpi-gdr:all_reduce"]
    assert len(spans) >= 2 and all(e["is_async"] and e["duration"] > 0 for e in spans)


# ---- MPI_GDR_TRACE ----------------------------------------------------------------------------------------


class Trace:
    """A trace file: operations by number, their rounds, events by track."""

    def __init__(self, path):
        self.file = load(path)
        self.operations, self.queued, self.rounds, self.tracks = {}, {}, collections.defaultdict(list), {}
        by_track = collections.defaultdict(list)
        for event in self.file["traceEvents"]:
            if event["name"] == "thread_name":
                self.tracks[event["tid"]] = event["args"]["name"]
            if event["ph"] != "X":
                continue
            event["end"] = event["ts"] + event["dur"]
            by_track[event["tid"]].append(event)
            number = event["args"]["operation"]
            if event["cat"] == "round":
                self.rounds[number].append(event)
            else:
                into = self.queued if event["cat"] == "queue" else self.operations
                assert number not in into
                into[number] = event
        self.by_track = {tid: sorted(events, key=lambda e: e["ts"]) for tid, events in by_track.items()}


@pytest.fixture(scope="module")
def traces(job):
    return [Trace(job / "new" / f"lanes.rank{rank}.json") for rank in RANKS]


SLACK = 0.0015  # us: times have three digits and are read as floating point


def test_trace_has_what_was_called(job, traces):
    for rank, trace in zip(RANKS, traces, strict=True):
        other = trace.file["otherData"]
        assert (other["rank"], other["ranks"], other["clock"]) == (rank, 2, "CLOCK_MONOTONIC")
        assert other["dropped_operations"] == other["dropped_rounds"] == 0
        assert {e["pid"] for e in trace.file["traceEvents"]} == {rank}
        # The flight log is written by separate code at issue, and contains each message.
        log = pickle.loads((job / f"flight{rank}").read_bytes())
        called = collections.Counter((e["name"], e["algorithm"]) for e in log["entries"])
        operations = [(e["name"], e["args"]) for e in trace.operations.values()]
        assert collections.Counter((n, a["algorithm"]) for n, a in operations if "sequence" in a) == called
        messages = collections.Counter(n for n, a in operations if "sequence" not in a)
        assert messages == {"recv" if rank else "send": 4, "coalesced": 3}
        assert len(log["p2p_entries"]) == 4 + 2 * 3
        assert not any("failed" in e["args"] or "unfinished" in e["args"] for e in trace.operations.values())
        wide = [e for e in trace.operations.values() if e["args"].get("dtype") == "bfloat16"]
        assert [(e["args"]["count"], e["args"]["bytes"]) for e in wide] == [(300_000, 600_000)] * 3
        assert len({e["args"]["group"] for e in trace.operations.values()}) == 2


def test_tracks_do_not_overlap_themselves(traces):
    for trace in traces:
        for tid, events in trace.by_track.items():
            for first, second in itertools.pairwise(events):
                assert first["end"] <= second["ts"] + SLACK, (trace.tracks[tid], first, second)
        assert trace.tracks.keys() == trace.by_track.keys()
        names = set(trace.tracks.values())
        assert len(names) == len(trace.tracks) and {"queue", "collectives", "messages"} <= names


def test_rounds_lie_in_their_operations(traces):
    for trace in traces:
        assert trace.rounds and trace.rounds.keys() <= trace.operations.keys()
        for number, rounds in trace.rounds.items():
            operation = trace.operations[number]
            track = trace.tracks[operation["tid"]]
            lanes = collections.defaultdict(list)
            for event in rounds:
                assert operation["ts"] <= event["ts"] + SLACK and event["end"] <= operation["end"] + SLACK
                name = trace.tracks[event["tid"]]
                assert name.startswith(track) and name.endswith(f"lane {event['args']['lane']}")
                assert event["name"] == "+".join(event["args"]["steps"])
                lanes[event["tid"]].append(event)
            for events in lanes.values():
                # A track may hold several schedules of a coalesced operation in sequence.
                numbers = [e["args"]["round"] for e in sorted(events, key=lambda e: e["ts"])]
                assert numbers[0] == 0
                assert all(b in (a + 1, 0) for a, b in itertools.pairwise(numbers)), numbers
        assert trace.queued.keys() == trace.operations.keys()
        for number, event in trace.queued.items():
            assert abs(event["end"] - trace.operations[number]["ts"]) <= SLACK


def test_traces_of_all_ranks_agree(traces):
    def story(trace):
        return {
            (e["args"]["group"], e["args"]["sequence"]): (
                e["name"],
                e["args"]["algorithm"],
                trace.queued[n],
                e,
            )
            for n, e in trace.operations.items()
            if "sequence" in e["args"]
        }

    first, second = map(story, traces)
    assert first.keys() == second.keys()
    for key, (name, algorithm, queued, run) in first.items():
        assert second[key][:2] == (name, algorithm)
        if name in ("all_reduce", "barrier"):  # not before all ranks have arrived; the clock is the same
            assert run["end"] >= second[key][2]["ts"] and second[key][3]["end"] >= queued["ts"]


@pytest.mark.parametrize("rank", RANKS)
def test_a_signal_writes_the_trace_as_it_stands(job, traces, rank):
    early = Trace(job / f"signal{rank}.json")
    assert early.file["otherData"]["reason"] == "signal"
    assert traces[rank].file["otherData"]["reason"] == "the process ends"
    assert early.operations.keys() == traces[rank].operations.keys()  # nothing was called afterwards
    assert early.rounds.keys() == traces[rank].rounds.keys()


def test_a_path_that_cannot_be_written(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import torch.distributed as d; d.init_process_group('mpi-gdr')")
    done = mpi_gdr("run", "-n", "1", str(program), MPI_GDR_TRACE="/dev/null/trace.json")
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "MPI_GDR_TRACE=/dev/null/trace.json" in text and "Not a directory" in text, text
