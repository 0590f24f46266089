"""`mpi-gdr bench`: jobs, the correctness column, the command line. Does not check times."""

import json
import re
from pathlib import Path

import pytest
import torch
from support.cases import cases
from support.command import mpi_gdr, mpi_gdr_output

from mpi_backend import bench, columns, rank_command, selftest
from mpi_backend.bench import compare, device, options, overhead
from mpi_backend.bench.collectives import KINDS
from mpi_backend.bench.side_by_side import own_options

pytestmark = pytest.mark.long

QUICK = ("-b", "64", "-e", "256K", "-f", "64", "-n", "2", "-w", "1")


FORMS = ("out_of_place", "in_place")


def json_of(*arguments, status=0):
    """The report of `mpi-gdr ARGUMENTS --json -`."""
    result = mpi_gdr(*arguments, "--json", "-")
    found = selftest.last_json(result.stdout)
    assert found is not None and result.returncode == status, result.stdout + result.stderr
    return found


# ---- jobs -------------------------------------------------------------------------------------------------


def test_every_collective_is_timed_and_right():
    found = json_of("bench", "-n", "2", ",".join(options.COLLECTIVES), *QUICK)
    assert [report["collective"] for report in found["reports"]] == list(options.COLLECTIVES)
    missing = {name: {"out_of_place"} for name in ("all_reduce", "broadcast", "reduce")}
    missing |= {name: {"in_place"} for name in ("all_to_all", "sendrecv", "barrier")}
    for report in found["reports"]:
        check_rows(report, missing.get(report["collective"], set()))
        limits = [row[form]["limit_us"] for row in report["rows"] for form in FORMS if row[form]]
        rewritten = sum(row["bytes"] >= options.REWRITE_BYTES for row in report["rows"])
        known = sum(limit is not None and limit > 0 for limit in limits)
        assert known == rewritten * (len(limits) // len(report["rows"]))


def test_bare_mpi_runs_the_same_protocol_and_is_right():
    found = json_of("bench", "-n", "3", ",".join(options.COLLECTIVES), *QUICK, "--backend", "mpi")
    missing = {"broadcast": {"out_of_place"}, "sendrecv": {"in_place"}, "barrier": {"in_place"}}
    for report in found["reports"]:
        check_rows(report, missing.get(report["collective"], set()))


def check_rows(found, missing):
    assert found["wrong"] == 0
    for row in found["rows"]:
        present = {form for form in FORMS if row[form]}
        assert present == set(FORMS) - missing
        for form in present:
            timing = row[form]
            assert 0 < timing["min_us"] <= timing["mean_us"] <= timing["time_us"]
            assert 0 < timing["p50_us"] <= timing["p99_us"]
    block = 4 * found["info"]["ranks"] if KINDS[found["collective"]].blocks else 4
    sizes = [size // block * block for size in (64, 4096, 262144)]
    assert [row["bytes"] for row in found["rows"]] == ([0] if found["collective"] == "barrier" else sizes)


def test_a_table_of_markdown_in_columns_as_wide_as_the_terminal():
    lines = [
        "caption", "", "| bytes | MPI us |", "|--:|---|", "| 8 | 1.5 (1..2) |", "| 64 | N/A |", "", "end",
    ]  # fmt: skip
    wide = ["bytes  MPI us", "-----  ----------", "    8  1.5 (1..2)", "   64  N/A"]
    assert columns.from_markdown(lines, 80) == ["caption", "", *wide, "", "end"]
    narrow = columns.from_markdown(lines, 16)
    assert narrow[2:6] == ["bytes  MPI us", "-----  ------", "    8  1.5", "   64  N/A"]
    assert "--json" in narrow[6]


def test_mpi_is_left_out_where_it_has_no_such_reduction():
    arguments = ("--sizes", "64", "-n", "2", "-d", "float8_e5m2", "--backend", "mpi")
    reduction, movement = json_of("bench", "-n", "2", "all_reduce,all_gather", *arguments)["reports"]
    assert [row[form] for row in reduction["rows"] for form in FORMS] == [None, None]
    assert all(row[form] for row in movement["rows"] for form in FORMS) and movement["wrong"] == 0
    cells = {"mpi-gdr": {"p50_us": [1.0], "of_limit_percent": [None]}, "mpi": None}
    found = {"contenders": ["mpi-gdr", "mpi"]}
    assert compare.table(found, [{"bytes": 64, "cells": cells}])[-1] == "| 64 | 1 | N/A | N/A |"


@pytest.mark.parametrize("op", ["prod", "avg"])
def test_other_operations_and_types(op):
    found = json_of("bench", "-n", "3", "reduce_scatter", *QUICK, "-g", "1", "-d", "bfloat16", "-o", op)
    assert found["wrong"] == 0
    assert all(row["bytes"] % 6 == 0 and row["count"] == row["bytes"] // 6 for row in found["rows"])


def test_columns_of_nccl_tests_under_a_launcher():
    output = mpi_gdr_output("run", "-n", "2", "-m", "mpi_backend", "bench", "all_gather", *QUICK)
    rows = [line.split() for line in output.splitlines() if line and not line.startswith("#")]
    assert [row[:2] for row in rows] == [["64", "8"], ["4096", "512"], ["262144", "32768"]]
    assert all(row[2:5] == ["float32", "none", "-1"] for row in rows)
    assert all(len(row) == 13 and row[8] == row[12] == "0" for row in rows)
    assert "# time: maximum over ranks of the mean per call" in output
    assert re.search(r"^# Out of bounds values : 0 OK$", output, re.MULTILINE)


def test_the_port_of_local_ranks_is_none_that_the_kernel_gives_away():
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(50):
        env = {}
        rank_command.set_local_address(env)
        assert env["MASTER_ADDR"] == "127.0.0.1" and 1024 <= int(env["MASTER_PORT"]) < below


def test_gloo_runs_the_same_code_and_writes_json(tmp_path):
    path = tmp_path / "gloo.json"
    arguments = ("all_reduce", *QUICK, "--backend", "gloo", "--format", "osu", "--json", str(path))
    output = mpi_gdr_output("bench", "-n", "2", *arguments)
    assert "Avg Latency(us)" in output
    rows = [line.split() for line in output.splitlines() if line and not line.startswith("#")]
    assert [row[0] for row in rows] == ["64", "4096", "262144"] and all(len(row) == 5 for row in rows)
    found = json.loads(path.read_text())
    assert found["info"]["backend"] == "gloo" and "library" not in found["info"]


def test_wrong_elements_are_counted(tmp_path):
    script = tmp_path / "sabotage.py"
    script.write_text(
        "import sys, torch.distributed as dist\n"
        "from mpi_backend import bench\n"
        "original = dist.broadcast\n"
        "def broken(tensor, root):\n"
        "    original(tensor, root)\n"
        "    if dist.get_rank() == 1: tensor[:3] += 1\n"
        "dist.broadcast = broken\n"
        "sys.exit(bench.main(sys.argv[1:]))\n"
    )
    found = json_of("run", "-n", "2", str(script), "broadcast", *QUICK, status=1)
    assert [row["in_place"]["wrong"] for row in found["rows"]] == [3, 3, 3]
    assert json_of("run", "-n", "2", str(script), "broadcast", *QUICK, "-c", "0")["wrong"] is None


def test_the_suite_runs_every_benchmark(tmp_path):
    pytest.importorskip("matplotlib", reason="the suite draws plots")
    output = mpi_gdr_output(
        "bench", "suite", "--quick", "--out", str(tmp_path), "--only", "all_reduce,ddp,overhead,overlap"
    )
    page = (tmp_path / "performance.md").read_text()
    assert output.strip() == page.strip()
    found = json.loads((tmp_path / "results.json").read_text())
    assert [report["ranks"] for report in found["comparisons"]] == [2]
    for report in found["comparisons"]:
        assert [row["bytes"] for row in report["rows"] if row["place"] == "in_place"] == [8, 65536]
        assert report["wrong"] == 0
        assert (tmp_path / f"all_reduce-{report['ranks']}.png").read_bytes().startswith(b"\x89PNG")
    for name in ("ddp", "overhead", "overlap"):
        assert all(len(reports) == 1 for reports in found["others"][name]["contenders"].values())
    step = found["others"]["ddp"]["contenders"]["mpi-gdr"][0]
    assert sum(step["buckets"]) == 4 * step["parameters"] and step["step_ms"] > 0
    host = found["others"]["overhead"]["contenders"]
    assert set(host) == {"mpi-gdr", "fake", "mpi"}
    rows = [row for row, _, _ in overhead.cases([8, 1024, 8192])]
    assert all(list(reports[0]["collectives"]) == rows for reports in host.values())


def test_device_benchmark_on_the_cpu():
    arguments = ["--device", "cpu", "--sizes", "8,64K", "--iters", "2", "--rounds", "1"]
    found = json_of("bench", "-n", "2", "device", *arguments)
    assert list(found["contenders"]) == ["mpi-gdr", "gloo"]
    for (report,) in found["contenders"].values():
        assert [row["bytes"] for row in report["rows"]] == [8, 65536]
        assert all(row[key] > 0 for row in report["rows"] for key in ("host_ms", "device_ms"))
        assert report["overlap"]["both_ms"] > 0
    assert all(row["group"]["device_ms"] > 0 for row in found["contenders"]["mpi-gdr"][0]["rows"])
    page = "\n".join(device.markdown(found))
    assert "| 65536 |" in page and "| Gloo |" in page and "group memory, device ms" in page


# ---- command line -----------------------------------------------------------------------------------------


@cases(
    ("argv", "message"),
    (["all_reduce", "-b", "1M", "-e", "1K"], "-b 1048576"),
    (["all_reduce", "-f", "1"], "-f 1"),
    (["all_reduce", "-g", "2"], "-g 2: a rank has one device"),
    (["all_reduce", "-d", "bool", "-o", "avg"], "avg"),
    (["all_reduce", "--memory", "group", "--backend", "gloo"], "--memory group: expected"),
    (["all_reduce", "--backend", "mpi", "--device", "cuda"], "--backend mpi: expected"),
    (["all_reduce", "--compare", "ucc"], "'ucc': expected one of group, gloo, mpi, nccl"),
    (["all_reduce", "--compare", "mpi", "--backend", "gloo"], "--backend gloo"),
    (["all_reduce", "--compare", "gloo,mpi", "--device", "cuda"], "--compare mpi: expected --device cpu"),
    (["all_reduce", "--compare", "mpi"], "the number of ranks is missing"),
    (["device"], "the number of ranks is missing"),
    (["all_reduce", "--rounds", "2"], "--rounds needs"),
    (["all_reduce,reduce", "--plot", "x.png"], "--plot draws one"),
    (["all_reduce", "--sizes", "0"], "at least 1 byte"),
    (["all_reduce", "-d", "complex64", "-o", "max"], "complex64"),
    (["-n", "2", "suite"], "-n 2: the suite"),
    (["suite", "--only", "gpu"], "--only gpu"),
    (["ddp", "--compare", "nccl"], "'nccl'"),
    (["overhead"], "the number of ranks is missing"),
    (["-n", "0", "all_reduce"], "'0'"),
    (["scan"], "scan"),
    (["all_reduce", "-e", "many"], "'many'"),
    # of messages
    (["-n", "3", "bw"], "-n 3: expected 2 ranks"),
    (["-n", "1", "multi_bw"], "-n 1: expected at least 2 ranks"),
    (["latency"], "the number of ranks is missing"),
    (["latency", "-W", "4"], "unknown option -W"),
    (["bw", "-W", "0"], "'0' is not a number from 1 to 1000000000"),
    (["bw", "--timeout", "1000000001"], "'1000000001' is not a number from 1 to 1000000000"),
    (["bw", "-w", "-3"], "-w -3: expected at least 0"),
    (["bw", "-b", "0"], "-b 0: expected 1 to"),
    (["bw", "--sizes", "0"], "at least 1 byte"),
    (["bw", "-f", "1"], "-f 1"),
    (["bw", "--device", "cuda", "--backend", "mpi"], "--device cuda: bare MPI"),
    (["bw", "--compare", "nccl"], "'nccl': expected one of gloo, mpi, fake"),
    (["bw", "--compare", "mpi"], "the number of ranks is missing"),
    (["-n", "2", "bw", "--compare", "mpi", "--backend", "gloo"], "--backend gloo: --compare starts"),
)
def test_bad_command_lines(argv, message, capsys):
    with pytest.raises(SystemExit) as status:
        bench.main(argv)
    assert status.value.code == 2 and message in capsys.readouterr().err


@cases(
    ("available", "device", "message"),
    (False, "cuda", f"torch {torch.__version__} has no NCCL; builds for CUDA have it"),
    (True, "cpu", "expected --device cuda, got cpu"),
    (True, "cuda", "it takes a GPU for each of 2 ranks, and there are 1"),
)
def test_what_nccl_lacks_is_reported(available, device, message, monkeypatch, capsys):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SystemExit) as status:
        bench.main(["-n", "2", "all_reduce", "--compare", "nccl", "--device", device])
    assert status.value.code == 2 and f"--compare nccl: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("64K", 65536), ("1MiB", 1 << 20), ("2g", 2 << 30)])
def test_sizes_are_spelt_as_in_nccl_tests(text, value):
    assert options.size(text) == value


def test_sizes_are_whole_items_and_appear_once():
    def parsed(*argv):
        return options.parser_of_command().parse_args(["all_reduce", *argv])

    assert options.sizes(parsed("-b", "8", "-e", "64"), 4) == [8, 16, 32, 64]
    assert options.sizes(parsed("-b", "1", "-e", "32"), 12) == [12, 24]
    assert options.sizes(parsed("--sizes", "1M,8"), 4) == [1 << 20, 8]


def test_jobs_of_a_side_by_side_benchmark_get_its_own_options_only():
    argv = ["--steps", "3", "--rounds", "2", "--json=x", "--compare", "gloo", "--batch=1"]
    assert own_options(argv) == ["--steps", "3", "--batch=1"]
