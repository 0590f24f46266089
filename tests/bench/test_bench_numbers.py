"""The formulas and tables of `mpi-gdr bench`, without a job."""

import sys

import pytest
import torch
from support.cases import cases

from mpi_backend.bench import compare, ddp, device, jobs, limit, overlap, plot, report, suite
from mpi_backend.bench.collectives import KINDS, PERIOD, Case, tiled


@cases(("collective", "factor"),
    ("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75),
    ("gather", 0.75), ("scatter", 0.75), ("broadcast", 1.0), ("reduce", 1.0), ("sendrecv", 1.0),
)  # fmt: skip
def test_bus_factors_on_four_ranks(collective, factor):
    assert KINDS[collective].bus_factor(4) == factor


@cases(
    ("collective", "in_place", "sizes"),
    ("all_reduce", True, 8),  # all read and write everything
    ("reduce_scatter", False, 5),  # all read everything, each writes a quarter
    ("broadcast", True, 6),  # three copies
    ("all_gather", False, 8),  # four copies of all blocks
    ("all_gather", True, 6),  # each without its own quarter
    ("gather", True, 1.5),
    ("all_to_all", False, 8),
)
def test_bytes_that_four_ranks_must_move(collective, in_place, sizes):
    assert KINDS[collective].least(4, in_place) == sizes


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
    headers = list(report.nccl_head({}))
    assert len(line) == len(headers[2])  # columns align with their headings
    assert report.osu_row(row).split() == ["64", "12.00", "11.00", "12.35", "20"]


def comparison(**times):
    """An all_reduce on 2 ranks; {contender: {bytes: [p50 by round]}}."""
    keys = dict.fromkeys(compare.Rounds.__annotations__)

    def row(total, p50):
        form = keys | {"p50_us": p50, "p99_us": 2 * p50}
        return {"bytes": total, "count": total // 4, "out_of_place": None, "in_place": form}

    reports = {}
    for name, by_bytes in times.items():
        rounds = zip(*by_bytes.values(), strict=True)
        reports[name.replace("_", "-")] = [
            {"rows": [row(total, p50) for total, p50 in zip(by_bytes, of_round, strict=True)]}
            for of_round in rounds
        ]
    found = {"collective": "all_reduce", "ranks": 2, "type": "float32", "redop": "sum", "rounds": 3}
    found |= {"contenders": list(reports), "rows": list(compare.merged(reports))}
    conditions = {"date": "2026-11-25", "cpu": "x", "cores": 2, "library": "y", "torch": "z"}
    copies = {"one_core": [9.0, 11.0, 10.0], "all_cores": [12.0, 14.0, 13.0]}
    return found | {"conditions": conditions | {"load_average": 0.1, "copies": copies}}


def test_table_of_the_comparison():
    others = {"gloo": {8: [30.0, 20.0, 45000.0]}, "mpi": {8: [1.0, 4.0, 1.5]}}
    found = comparison(mpi_gdr={8: [2.0, 4.0, 3.0]}, **others)
    lines = compare.markdown(found)
    cells = ["8", "3 (2..4)", "30 (20..45000)", "1.5 (1..4)", "15 (5..15000)", "0.5 (0.5..1)"]
    assert lines[-1] == f"| {' | '.join(cells)} |"
    assert len({line.count("|") for line in lines if "|" in line}) == 1
    assert "memcpy 10 (9..11) GB/s on one core, 13 (12..14) on all 2 at once" in lines[0]
    assert "| 8 | 3 / 6 | 30 / 60 | 1.5 / 3 |" in compare.markdown(found, percentiles=True)[-1]


def test_a_range_takes_the_size_where_the_ratio_is_least():
    ours = {16 << 20: [10.0], 128 << 20: [100.0]}
    others = {"gloo": {16 << 20: [50.0], 128 << 20: [400.0]}, "mpi": {16 << 20: [15.0], 128 << 20: [300.0]}}
    found = comparison(mpi_gdr=ours, group=ours, **others)
    row = next(line for line in suite.min_ratios_by_size({2: found}) if "16 - 128 MiB |" in line)
    assert [cell.strip() for cell in row.split("|")][1:-2] == ["16 - 128 MiB", "4", "1.5"]


def test_share_of_communication_that_is_hidden():
    report = {
        "parameters": 1000, "batch": 1, "buckets": [1 << 20], "compute_ms": 10.0, "communication_ms": 4.0,
    }  # fmt: skip
    reports = {"mpi-gdr": [report | {"step_ms": 11.0, "exposed_ms": 1.0}]}
    reports["gloo"] = [report | {"step_ms": 14.0, "exposed_ms": 4.0}]
    lines = ddp.markdown({"ranks": 2, "rounds": 1, "contenders": reports})
    rows = [line for line in lines if line.startswith(("| mpi-gdr", "| Gloo"))]
    assert [row.split("|")[-2].split()[0] for row in rows] == ["75", "0"]
    assert lines[-1].endswith("mpi-gdr / Gloo: 0.25")


def test_speed_of_a_loop_beside_communication():
    row = {"bytes": 8, "chunks": 1, "alone": 0.9}
    reports = {
        "mpi-gdr": [{"rows": [row | {"loop": 1.0, "rest": 1.0}]}],
        "mpi": [{"rows": [row | {"loop": 1.2, "rest": 3.0}]}],
    }
    cells = overlap.markdown({"ranks": 2, "rounds": 1, "contenders": reports})[-1].split("|")[1:-1]
    assert [cell.split()[0] for cell in cells] == ["8", "90", "75", "1000", "3000", "1.2", "2.1"]


def test_every_round_measures_copies_and_begins_with_another_contender(monkeypatch):
    order = []
    monkeypatch.setattr(jobs, "run_job", lambda ranks, arguments: order.append(arguments[0]) or {})
    reports, copies = jobs.interleave(2, {"mpi-gdr": ["a"], "gloo": ["b"], "mpi": ["c"]}, 3)
    assert "".join(order) == "abcbcacab" and [len(by_round) for by_round in reports.values()] == [3, 3, 3]
    assert all(len(speeds) == 3 and min(speeds) > 0 for speeds in copies.values())


def test_limit_of_a_device():
    one = limit.DeviceLimit.__new__(limit.DeviceLimit)
    one.size, one.bandwidth = 4, 2e12
    assert one.time("all_reduce", 1 << 20, True, 1) == pytest.approx(2 * 4 * 2**20 / 2e12 * 1e6)
    assert one.time("all_reduce", 8, True, 1) is None and one.time("barrier", 0, False, 1) is None
    assert limit.copy_bandwidth(torch.device("cpu"), torch.device("cpu"), 1 << 20) > 0


def test_hidden_percent():
    assert device.hidden_percent({"all_reduce_ms": 4.0, "products_ms": 5.0, "both_ms": 6.0}) == 75


def test_a_plot_names_bytes_machine_and_date(tmp_path, monkeypatch):
    figures = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure, "savefig", lambda self, *args, **keywords: figures.append(self))
    sizes = [8 << k for k in range(25)]
    plot.plot_comparison(comparison(mpi_gdr={size: [2.0, 4.0, 3.0] for size in sizes}), "x.png")
    (drawn,) = figures
    title = drawn.get_suptitle()
    assert "all_reduce, float32, 2 ranks" in title and "x, 2 cores; y, torch z; 2026-11-25" in title
    for axes in drawn.axes:
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert (labels[0], labels[-1]) == ("8 B", "128 MiB") and 4 < len(labels) <= 8


@pytest.mark.parametrize("count", [1, 2, 8, 9, 11, 25])
def test_ticks_are_few(count):
    ticks = plot.ticks_of(range(count))
    assert ticks == sorted(set(ticks)) and len(ticks) <= 8
    assert {ticks[0], ticks[-1]} == {0, count - 1}


def test_an_abort_of_gloo_after_its_report_is_forgiven(monkeypatch):
    program = "import os, sys; print('{\"rows\": []}', flush=True); os.abort() if {} else sys.exit(1)"
    for aborts, backend in ((True, "gloo"), (False, "gloo"), (True, "mpi-gdr")):
        job = [sys.executable, "-c", program.replace("{}", str(aborts))]
        monkeypatch.setattr(jobs.child_job, "mpi_gdr", lambda *_, job=job: job)
        if aborts and backend == "gloo":
            assert jobs.run_job(2, ["ddp", "--backend", backend]) == {"rows": []}
        else:
            with pytest.raises(SystemExit, match="ended with"):
                jobs.run_job(2, ["ddp", "--backend", backend])
