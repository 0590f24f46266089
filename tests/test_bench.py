"""`mpi-gdr bench`: columns, factors, the correctness column. No test looks at a time."""

import json
import re

import pytest
import torch
from support.command import mpi_gdr, run_module

from mpi_backend import bench, selftest
from mpi_backend.bench import compare, report
from mpi_backend.bench.collectives import KINDS, PERIOD, Case, tiled

QUICK = ("-b", "64", "-e", "256K", "-f", "64", "-n", "2", "-w", "1")


def json_of(result):
    found = selftest.last_json(result.stdout)
    assert found is not None, result.stdout + result.stderr
    return found


# ---- jobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collective", bench.COLLECTIVES)
def test_every_collective_is_timed_and_right(collective):
    result = mpi_gdr("bench", "-n", "2", collective, *QUICK, "--json", "-")
    found = json_of(result)
    assert result.returncode == 0 and found["wrong"] == 0
    places = {"out_of_place", "in_place"}
    missing = {"all_reduce": {"out_of_place"}, "broadcast": {"out_of_place"}, "reduce": {"out_of_place"}}
    missing |= {name: {"in_place"} for name in ("all_to_all", "sendrecv", "barrier")}
    for row in found["rows"]:
        present = {place for place in places if row[place]}
        assert present == places - missing.get(collective, set())
        for place in present:
            timing = row[place]
            assert 0 < timing["min_us"] <= timing["mean_us"] <= timing["time_us"]
            assert 0 < timing["p50_us"] <= timing["p99_us"]
    assert [row["bytes"] for row in found["rows"]] == ([0] if collective == "barrier" else [64, 4096, 262144])


@pytest.mark.parametrize("op", ["prod", "min", "avg"])
def test_other_operations_and_types(op):
    result = mpi_gdr("bench", "-n", "3", "reduce_scatter", *QUICK, "-d", "bfloat16", "-o", op, "--json", "-")
    found = json_of(result)
    assert result.returncode == 0 and found["wrong"] == 0
    assert all(row["bytes"] % 6 == 0 and row["count"] == row["bytes"] // 6 for row in found["rows"])


def test_columns_of_nccl_tests_under_a_launcher():
    result = mpi_gdr("run", "-n", "2", "-m", "mpi_backend", "bench", "all_gather", *QUICK)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line and not line.startswith("#")]
    assert [row[:5] for row in rows] == [
        ["64", "8", "float32", "none", "-1"],
        ["4096", "512", "float32", "none", "-1"],
        ["262144", "32768", "float32", "none", "-1"],
    ]
    assert all(len(row) == 13 and row[8] == row[12] == "0" for row in rows)
    assert "# time: maximum over ranks of the mean per call" in result.stdout
    assert re.search(r"^# Out of bounds values : 0 OK$", result.stdout, re.MULTILINE)


def test_gloo_runs_the_same_code_and_writes_json(tmp_path):
    path = tmp_path / "gloo.json"
    arguments = ("all_reduce", *QUICK, "--backend", "gloo", "--format", "osu", "--json", str(path))
    result = mpi_gdr("bench", "-n", "2", *arguments)
    assert result.returncode == 0, result.stderr
    assert "Avg Latency(us)" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if line and not line.startswith("#")]
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
    result = mpi_gdr("run", "-n", "2", str(script), "broadcast", *QUICK, "--json", "-")
    found = json_of(result)
    assert result.returncode == 1
    assert [row["in_place"]["wrong"] for row in found["rows"]] == [3, 3, 3]
    unchecked = mpi_gdr("run", "-n", "2", str(script), "broadcast", *QUICK, "-c", "0", "--json", "-")
    assert unchecked.returncode == 0 and json_of(unchecked)["wrong"] is None


def test_comparison_has_a_row_per_size():
    sizes = ("-n", "2", "-e", "4K", "-f", "512")
    counts = ("--rounds", "1", "--iters", "2", "--warmup", "1")
    result = run_module("mpi_backend.bench.compare", *sizes, *counts)
    assert result.returncode == 0, result.stderr
    assert [line.split("|")[1].strip() for line in result.stdout.splitlines()[2:]] == ["8", "4096"]


# ---- command line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["all_reduce", "-b", "1M", "-e", "1K"], "-b 1048576"),
        (["all_reduce", "-f", "1"], "-f 1"),
        (["all_reduce", "-d", "bool", "-o", "avg"], "avg"),
        (["all_reduce", "--memory", "group", "--backend", "gloo"], "--memory group: expected"),
        (["-n", "0", "all_reduce"], "'0'"),
        (["scan"], "scan"),
        (["all_reduce", "-e", "many"], "'many'"),
    ],
)
def test_bad_command_lines(argv, message, capsys):
    with pytest.raises(SystemExit) as status:
        bench.main(argv)
    assert status.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("64K", 65536), ("1MiB", 1 << 20), ("2g", 2 << 30)])
def test_sizes_are_spelt_as_in_nccl_tests(text, value):
    assert bench.size(text) == value


def test_sizes_are_whole_items_and_appear_once():
    assert bench.sizes(8, 64, 2, 4) == [8, 16, 32, 64]
    assert bench.sizes(1, 32, 2, 12) == [12, 24]


# ---- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("sendrecv", 1.0),
    ],
)
def test_bus_factors_on_four_ranks(collective, factor):
    assert KINDS[collective].bus_factor(4) == factor


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_prediction_equals_a_fold_in_the_type_itself(size, dtype, op):
    case = Case(0, size, 50, dtype, op, 0, torch.device("cpu"))
    fold = {
        "sum": torch.logical_or if dtype == torch.bool else torch.add,
        "prod": torch.logical_and if dtype == torch.bool else torch.mul,
        "min": torch.minimum,
        "max": torch.maximum,
    }[op]
    total = case.source(0, 4090, 50)
    for rank in range(1, size):
        total = fold(total, case.source(rank, 4090, 50))
    assert torch.equal(total, case.reduced(4090, 50))


def test_neighbouring_blocks_differ():
    case = Case(0, 2, PERIOD, torch.float32, "sum", 0, torch.device("cpu"))
    whole = case.source(0, 0, PERIOD)
    for start in (7, 4096, 8192, 7 * 512):
        assert not torch.equal(whole[:4096], case.source(0, start, 4096))


@pytest.mark.parametrize(("start", "count"), [(0, 3), (5, 10), (27, 40), (100, 95)])
def test_tiled(start, count):
    table = torch.arange(PERIOD)
    expected = (torch.arange(count * 700) + start * 700) % PERIOD
    assert torch.equal(tiled(table, start * 700, count * 700), expected)


def test_rows():
    timing = {"time_us": 12.345, "mean_us": 12.0, "min_us": 11.0, "iterations": 20}
    timing |= {"algbw": 5.0, "busbw": 7.5, "wrong": 0}
    row = {"bytes": 64, "count": 16, "type": "float32", "redop": "sum", "root": -1}
    row |= {"out_of_place": None, "in_place": timing}
    words = ["64", "16", "float32", "sum", "-1", "N/A", "N/A", "N/A", "N/A", "12.35", "5.00", "7.50", "0"]
    line = report.nccl_row(row)
    assert line.split() == words
    headers = list(report.nccl_head())
    assert len(line) == len(headers[2])  # the columns stand under their names
    assert report.osu_row(row).split() == ["64", "12.00", "11.00", "12.35", "20"]


def test_table_of_the_comparison():
    times = {"mpi-gdr": [2.0, 4.0, 3.0], "group memory": [1.5], "Gloo": [30.0], "MPI": [1.5]}
    lines = compare.table({name: {8: samples} for name, samples in times.items()})
    cells = ["8", "3 (2..4)", "1.5 (1.5..1.5)", "30 (30..30)", "1.5 (1.5..1.5)", "10", "0.5", "20", "1"]
    assert lines[-1] == f"| {' | '.join(cells)} |"
    assert len({line.count("|") for line in lines}) == 1


def test_plot_of_the_comparison(tmp_path):
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    picture = tmp_path / "plot.png"
    compare.plot({"mpi-gdr": {8: [2.0, 4.0], 64: [3.0]}, "MPI": {8: [1.5], 64: [2.0]}}, 2, str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
