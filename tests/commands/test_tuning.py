"""Selection tables: MPI_GDR_TUNING, Options.selection, equality on ranks, `mpi-gdr tune`. Checks no times."""

import itertools
import json
import re
from pathlib import Path

import pytest
from support import processes
from support.cases import cases
from support.command import mpi_gdr, mpi_gdr_output, on_a_terminal

from mpi_backend import info, tune
from mpi_backend._tools import schedule
from mpi_backend.extension import _C
from mpi_backend.tune import table
from mpi_backend.tune.report import summary

PROGRAM = Path(__file__).parents[1] / "launch" / "programs" / "selection.py"
# ---- groups -----------------------------------------------------------------------------------------------


def test_rows_of_a_file_and_of_a_group(tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text(
        "all_reduce dtype=half 0-1K recursive_doubling  # first\n"
        "all_reduce ranks=2 0-1K ring\n"
        "all_reduce 1K-32K rabenseifner\n"
        "bcast 0-1M binomial\n"
    )
    variables = {"MPI_GDR_TUNING": str(file), "MPI_GDR_SELECT": "scatter:0-1k:binomial#bcast:2M-inf:chain"}
    for result in processes.run_apart(2, PROGRAM, **variables):
        output = result.expect(0)
        reach = re.search(r"^reach: (\w+)$", output, re.M)[1]
        beyond = {"all": "adaptive", "segments": "adaptive", "none": "ring"}[reach]
        lines = {
            f"scatter: binomial {'linear' if reach == 'none' else 'staged'}", "all_reduce 64: ring",
            "all_reduce 4096: rabenseifner", f"all_reduce 65536: {beyond}",
            "sum of bfloat16: recursive_doubling", "native: native recursive_doubling", "copied: True",
            "good file: no error", "others: [2.0, 2.0, 2.0]",
        }  # fmt: skip
        assert lines <= set(output.splitlines()), output
        assert output.count("right: True") == 5 and "right: False" not in output
        for pattern in (
            r"broadcast: binomial (adaptive|chain)$",
            r"typo: ValueError: collective='all_redcue', expected one of: all_red",
            r"no such sum: ValueError: .*op=avg is not defined on bool",
            r"bad rows: ValueError: .*Options.selection: in .*expected dtype=inte",
            rf"bad file: ValueError: .*{file}:2: 'dissemi' is not an algorithm of barrier: ",
            r"differ: \w+: .* have different settings, expected equal ones: Options.selection is "
            r"barrier:native on rank 0 and barrier:dissemination on rank 1$",
            r"destroyed: ValueError: .*has been destroyed",
        ):
            assert re.search(f"^{pattern}", output, re.M), output


def test_ranks_with_different_tables_get_an_error(tmp_path):
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    files[0].write_text("barrier dissemination\n")
    files[1].write_text("barrier native\nall_reduce ring\n")
    sentence = rf"^different: \w+: .*different settings, expected equal ones: MPI_GDR_TUNING is {files[0]} "
    sentence += rf"\(1 row, digest \w+\) on rank 0 and {files[1]} \(2 rows, digest \w+\) on rank 1$"
    for result in processes.run_apart(2, PROGRAM, DIFFERENT=f"MPI_GDR_TUNING|{files[0]}|{files[1]}"):
        assert re.search(sentence, result.expect(0), re.M), result.output


def test_info_shows_the_built_in_table_as_it_was_written(capsys, monkeypatch):
    rows = [(row, "built-in") for row in schedule.parse_table(schedule.default_table(), "built-in")]
    monkeypatch.setattr(_C, "selection_rows", lambda: rows)  # independent of the tests' environment
    assert info.show_table(first=True) == 0
    assert capsys.readouterr().out == schedule.default_table()


def test_info_marks_rows_that_are_not_built_in(capsys, monkeypatch):
    rows = [("broadcast 0-4K chain", "rows.txt:2"), ("broadcast binomial", "built-in")]
    monkeypatch.setattr(_C, "selection_rows", lambda: rows)
    assert info.show_table(first=True) == 0
    printed = capsys.readouterr().out
    expected = ["broadcast 0-4K chain".ljust(92) + "# rows.txt:2", "broadcast binomial"]
    assert printed.splitlines() == expected
    assert len(schedule.parse_table(printed, "printed")) == 2
    assert info.show_table(first=False) == 0 and capsys.readouterr().out == ""

    def bad():
        raise ValueError("rows.txt:3: what is wrong")

    monkeypatch.setattr(_C, "selection_rows", bad)
    assert info.show_table(first=True) == 1
    assert capsys.readouterr().err == "mpi-gdr info: rows.txt:3: what is wrong\n"


def test_info_shows_where_choices_come_from(tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text("\nall_gather ranks=4 ring\n")
    env = {
        "MPI_GDR_TUNING": str(file),
        "MPI_GDR_SELECT": "bcast:0-4k:chain#allreduce:1M-inf:leaders=1:two_level",
        "MPI_GDR_BARRIER_ALGO": "native",
    }
    report = json.loads(mpi_gdr("info", "--json", "--size", "4", **env).stdout)
    keys = ("collective", "from_bytes", "algorithm", "origin")
    found = {tuple(row[key] for key in keys) for row in report["algorithms"]["table"]}
    assert {
        ("broadcast", 0, "chain", "MPI_GDR_SELECT"),
        ("broadcast", 4096, "binomial", "built-in"),
        ("all_gather", 0, "ring", f"{file}:2"),
        ("barrier", 0, "native", "MPI_GDR_BARRIER_ALGO"),
    } <= found
    table_two_level = report["algorithms"]["table_two_level"]
    leaders = [(row["from_bytes"], row["leaders"]) for row in table_two_level if "leaders" in row]
    assert leaders == [(0, 1), (1 << 20, 1)]  # the first one is built in


# ---- tune: the table --------------------------------------------------------------------------------------


def point(size, built_in="ring", dtype="float32", collective="all_reduce", whole=None, **medians):
    result = {"collective": collective, "dtype": dtype, "bytes": size, "whole": whole or size}
    return result | {"built_in": built_in, "median_us": medians, "quartile_us": medians}


def result_of(*points, ranks=2, reach="all"):
    about = {"mpi_gdr": "1", "torch": "2", "library": "MPI"}
    return {"ranks": ranks, "reach": reach, "about": about, "points": list(points)}


def test_a_switch_must_win_by_more_than_the_hysteresis():
    points = [
        point(64, ring=10.0, flag=9.6, native=1.0),  # the built-in one stays
        point(256, ring=10.0, flag=9.0, native=1.0),
        point(1024, ring=10.0, flag=10.4, native=1.0),  # the neighbour's choice stays
        point(4096, ring=10.0, flag=11.0, native=1.0),
    ]
    assert table.with_hysteresis(points, native=False) == ["ring", "flag", "flag", "ring"]
    assert table.with_hysteresis(points, native=True) == ["native"] * 4
    # Without a time of the built-in algorithm the fastest one is chosen.
    assert table.with_hysteresis([point(64, built_in="staged", ring=2.0, flag=1.99)], False) == ["flag"]
    # `adaptive` replaces `staged` unless it takes much longer: the timed tensors are ordinary ones.
    assert table.with_hysteresis([point(64, ring=10.0, staged=5.0, adaptive=6.0)], False) == ["adaptive"]
    assert table.with_hysteresis([point(64, ring=10.0, staged=5.0, adaptive=7.0)], False) == ["staged"]
    # The median wins by chance, the lower quartile does not.
    lucky = point(64, ring=10.0, flag=5.0) | {"quartile_us": {"ring": 4.0, "flag": 4.5}}
    assert table.with_hysteresis([lucky], False) == ["ring"]


def test_native_reduces_floats_only_on_request():
    points = [point(64, dtype=dtype, ring=10.0, native=1.0) for dtype in ("float32", "int32")]
    points.append(point(64, collective="broadcast", dtype="any", built_in="chain", chain=10.0, native=1.0))
    results = [result_of(*points)]
    taken = {(c.collective, c.dtype): c.algorithms for c in table.choose(results, False)}
    assert taken == {
        ("all_reduce", "float32"): ["ring"],
        ("all_reduce", "int32"): ["native"],
        ("broadcast", "any"): ["native"],
    }
    lines = summary(results, table.choose(results, False), False)
    assert re.match(r"native all_reduce of float32, 2 ranks, is faster at 1 of 1 sizes", lines[-1])
    curves = table.choose(results, True)
    assert all(curve.algorithms == ["native"] for curve in curves)
    text = table.table_text(results, curves, "mpi-gdr tune", False)
    assert "order=library" in text
    ranges = schedule.selection_ranges(2, "all", "float32", text)
    assert next(row["algorithm"] for row in ranges if row["collective"] == "all_reduce") == "native"


def test_the_file_chooses_what_was_measured():
    points = [
        point(size, dtype=dtype, flag=1.0 + (size > 300), ring=1.5 + (dtype != "float32"))
        for size in (64, 256, 1024, 16 << 20)
        for dtype in ("float32", "bfloat16")
    ]
    results = [result_of(*points), result_of(*points, ranks=5)]
    curves = table.choose(results, False)
    assert [curve.segments() for curve in curves] == [
        [(0, 512, "flag"), (512, table.MAX_BYTES, "ring")],
        [(0, table.MAX_BYTES, "flag")],
    ] * 2
    for extend, like_two, like_five in ((False, {2}, {5}), (True, {2, 3, 4}, {5, 6, 1000})):
        text = table.table_text(results, curves, "mpi-gdr tune", extend)
        for ranks in (2, 3, 4, 5, 6, 1000):
            for dtype in ("float32", "bfloat16"):
                rows = [
                    (row["from_bytes"], row["algorithm"])
                    for row in schedule.selection_ranges(ranks, "all", dtype, text)
                    if row["collective"] == "all_reduce"
                    and row["origin"] != "built-in"
                    and row["from_bytes"] < 1 << 20  # far from flag's upper limit
                ]
                expected = [(0, "flag"), (512, "ring")] if dtype == "float32" else [(0, "flag")]
                assert rows == (expected if ranks in like_two | like_five else []), (extend, ranks, dtype)


def test_equal_rows_of_another_dtype_are_written_once():
    points = [point(64, dtype=dtype, flag=1.0, ring=2.0) for dtype in ("float32", "bfloat16", "int32")]
    for p in points:
        p["whole"] = 16 << 20
    results = [result_of(*points, reach="none")]
    text = table.table_text(results, table.choose(results, False), "x", False)
    assert [line.split() for line in text.splitlines() if line and line[0] != "#"] == [
        ["all_reduce", "reach=messages", "ranks=2", "flag"]
    ]
    assert "# bfloat16: as float32 below" in text and "# int32: as float32 below" in text


@cases(("sizes", "start", "end"),
    ((1024, 16 << 20), 0, table.MAX_BYTES), ((2048, 16 << 20), 2048, table.MAX_BYTES), ((64, 4096), 0, 8192),
    ((65536,), 65536, 131072),
)  # fmt: skip
def test_rows_keep_to_what_was_measured(sizes, start, end):
    (curve,) = table.choose([result_of(*(point(size, ring=1.0) for size in sizes))], False)
    assert curve.segments() == [(start, end, "ring")]
    (curve,) = table.choose([result_of(point(1 << 20, ring=1.0, whole=16 << 20))], False)
    assert curve.segments() == [(1 << 20, table.MAX_BYTES, "ring")]


def test_rows_take_the_names_of_every_torch():
    text = "".join(f"{name} staged\n" for name in ("all_gather_single", "all_gather_into_tensor"))
    text += "".join(f"{name} ring\n" for name in ("reduce_scatter_single", "reduce_scatter_tensor"))
    rows = schedule.parse_table(text, "x")
    assert [row.split()[0] for row in rows] == ["all_gather"] * 2 + ["reduce_scatter"] * 2


@pytest.mark.parametrize(("low", "high", "limit"), [(64, 256, 128), (64, 128, 128), (1024, 65536, 8192)])
def test_limits_lie_between_the_sizes(low, high, limit):
    assert table.limit_between(low, high) == limit


# ---- tune: the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counts"),
    [("2", [2]), ("4", [2, 4]), ("6", [2, 4, 6]), ("3,2", [2, 3]), ("5,", None), ("1", None)],
)
def test_numbers_of_ranks(text, counts):
    if counts:
        assert tune.rank_counts(text) == counts
    else:
        with pytest.raises(tune.argparse.ArgumentTypeError, match="expected numbers of ranks"):
            tune.rank_counts(text)


@cases(
    ("argv", "message"),
    ([], "use `mpi-gdr tune -n RANKS`"),
    (
        ["-n", "2", "--collectives", "all_reduce,bcast"],
        "'bcast': did you mean broadcast? expected one of all_reduce",
    ),
    (["-n", "2", "--time", "0"], "'0' is not a number of seconds above 0"),
    (["-n", "2", "-b", "4K", "-e", "1K"], "-b 4096: expected 1 to -e 1024"),
)
def test_wrong_command_lines(argv, message, capsys, monkeypatch):
    monkeypatch.setattr(tune.rank_command, "is_rank", lambda env: False)
    with pytest.raises(SystemExit) as end:
        tune.main(argv)
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_a_short_run_writes_a_table_that_loads(tmp_path):
    """All algorithms of all collectives, at two sizes at most."""
    out, medians = tmp_path / "table.txt", tmp_path / "medians.json"
    words = ("--time", "0.1", "-b", "1K", "-e", "4K", "--dtypes", "float32,bfloat16", "--out", str(out))
    mpi_gdr_output("tune", "-n", "2", *words, "--json", str(medians), MPI_GDR_ALLREDUCE_ALGO="ring")
    (measured,) = json.loads(medians.read_text())
    assert measured["ranks"] == 2
    kinds = {(p["collective"], p["dtype"]) for p in measured["points"]}
    reductions = itertools.product(table.REDUCTIONS, ("float32", "bfloat16"))
    assert kinds == {*reductions, *((c, "any") for c in tune.COLLECTIVES if c not in table.REDUCTIONS)}
    sizes = {p["bytes"] for p in measured["points"] if p["collective"] in ("all_reduce", "broadcast")}
    assert sizes == {1024, 4096}
    for p in measured["points"]:
        names = {a["name"] for a in schedule.algorithms() if a["collective"] == p["collective"]}
        wanted = {"native"} if p["dtype"] != "bfloat16" else set()
        assert wanted <= set(p["median_us"]) <= names and p["built_in"] in p["median_us"]
        assert len(p["median_us"]) > 1 and all(t > 0 for t in p["median_us"].values())
    rows = schedule.parse_table(out.read_text(), "table.txt")
    assert {row.split()[0] for row in rows} == set(tune.COLLECTIVES)
    ranges = schedule.selection_ranges(2, measured["reach"], "float32", out.read_text())
    for curve in table.choose([measured], False):
        for p, taken in zip(curve.points, curve.algorithms, strict=True):
            if curve.dtype == "bfloat16":
                continue
            rows = [r for r in ranges if r["collective"] == curve.collective]
            (row,) = (r for r in rows if r["from_bytes"] <= p["bytes"] < r["to_bytes"])
            assert row["algorithm"] == taken and row["origin"].startswith("table:")


def test_a_bar_on_a_terminal_without_any_extra(tmp_path):
    words = ("--time", "0.1", "-b", "1K", "-e", "1K", "--collectives", "broadcast,barrier")
    (tmp_path / "rich.py").write_text("raise ImportError")
    words += ("--out", str(tmp_path / "table"))
    status, output = on_a_terminal("tune", "-n", "2", *words, PYTHONPATH=str(tmp_path))
    assert status == 0 and "@progress" not in output, output
    assert re.search(r"2 ranks +\[#+\] 100 %  .*barrier any", output), output


@pytest.mark.parametrize("load", [0.0, 3.0])
def test_a_loaded_machine_is_not_advised_to_use_the_table(load, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tune.rank_command, "is_rank", lambda env: False)
    monkeypatch.setattr(tune.os, "getloadavg", lambda: (load, load, load))

    def run_job(options, ranks, out, environment):
        out.write_text(json.dumps(result_of(point(64, ring=1.0, whole=16 << 20))))
        return 0, ""

    monkeypatch.setattr(tune, "run_job", run_job)
    assert tune.main(["-n", "2", "--out", str(tmp_path / "table")]) == 0
    printed = capsys.readouterr()
    assert ("use it with MPI_GDR_TUNING=" in printed.out) == (load == 0.0)
    assert ("distort medians" in printed.err) == ("do not use it" in printed.out) == (load == 3.0)
