"""`mpi-gdr selftest`: passes, fails on errors, and reports them."""

import json
import re
import runpy
import subprocess
import threading

import pytest
import torch
import torch.distributed as dist
from support.cases import cases
from support.command import mpi_gdr, on_a_terminal
from support.processes import MPI_GDR_RUN, clean_environment

from mpi_backend import rank_command, renamed, selftest
from mpi_backend._tools import schedule
from mpi_backend.bar import ERASE
from mpi_backend.selftest import operations, reference
from mpi_backend.selftest.checker import merge
from mpi_backend.selftest.report import as_text

pytestmark = pytest.mark.long


def report_of(result):
    report = selftest.last_json(result.stdout)
    assert report is not None, result.stdout + result.stderr
    return report


# ---- the command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_passes(n):
    result = mpi_gdr("selftest", "-n", str(n), "--quick", "--json")
    report = report_of(result)
    assert result.returncode == 0 and report["ok"], json.dumps(report)[:2000]
    assert [row["operation"] for row in report["operations"]] == list(operations.OPERATIONS)
    # One rank has no peer.
    assert all(row["cases"] > 0 for row in report["operations"] if n > 1 or row["operation"] != "send, recv")
    assert report["info"]["ranks"] == n and report["info"]["library"]
    assert "Warning" not in result.stderr  # torch warns about renamed calls


@pytest.mark.parametrize("has_new", [True, False])
def test_a_renamed_collective_has_the_name_of_this_torch(has_new, monkeypatch):
    names = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
    for new, old in names.items():
        monkeypatch.setattr(dist, old, old)
        if has_new:
            monkeypatch.setattr(dist, new, new, raising=False)
        else:
            monkeypatch.delattr(dist, new, raising=False)
    found = runpy.run_path(renamed.__file__)
    assert [found[new] for new in names] == list(names if has_new else names.values())


# The second operation waits until the test has read the first one's row.
WAITS = """
import sys, time
from pathlib import Path
from mpi_backend import selftest
from mpi_backend.selftest import operations

def reduce(check, plan):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)

operations.OPERATIONS["reduce"] = reduce
sys.exit(selftest.main(["--quick"]))
"""


def test_rows_come_one_by_one(tmp_path):
    script, seen = tmp_path / "waits.py", tmp_path / "seen"
    script.write_text(WAITS)
    command = [*MPI_GDR_RUN, "-n", "2", str(script), str(seen)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as job:
        timer = threading.Timer(120, job.terminate)
        timer.start()
        lines = []
        for line in job.stdout:
            lines.append(line)
            if line.startswith("all_reduce "):
                seen.touch()
        timer.cancel()
    assert seen.exists(), lines
    assert job.returncode == 0 and [line.split()[0] for line in lines].count("reduce") == 1, lines


def test_a_bar_on_a_terminal():
    status, output = on_a_terminal("selftest", "-n", "1", "--quick")
    lines = output.split("\r\n")
    assert status == 0 and "@progress" not in output
    assert "selftest [" in output and "%" in output
    rows = [line.rpartition(ERASE)[2] for line in lines]
    assert any(re.fullmatch(r"all_reduce +\d+ .* ok", row) for row in rows), output
    assert any(row.startswith("mpi-gdr selftest: passed") for row in rows), output


def test_forced_algorithms_are_run_and_shown(monkeypatch, capsys):
    sets = selftest.algorithm_sets(2)
    named = [pair for variables in sets for pair in variables.items()]
    known = [(a["variable"], a["name"]) for a in schedule.algorithms() if not a["two_level"]]
    assert sorted(named) == sorted(known)
    on_nodes = [each for each in selftest.algorithm_sets(3) if "MPI_GDR_RANKS_PER_NODE" in each]
    assert [each["MPI_GDR_ALLREDUCE_ALGO"] for each in on_nodes] == ["chain", "two_level"]
    assert on_nodes[0]["MPI_GDR_BARRIER_ALGO"] == "two_level"
    few = [sets[0], sets[-1]]  # tests/spmd/test_spmd.py --full runs all
    monkeypatch.setattr(selftest, "algorithm_sets", lambda n: few)
    assert selftest.main(["-n", "2", "--quick", "--json", "--algorithms"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and [run["forced"] for run in report["runs"]] == [{}, *few]


def test_without_a_launcher_it_asks_for_ranks():
    result = mpi_gdr("selftest")
    assert result.returncode == 2 and "-n N" in result.stderr


def test_ranks_are_taken_out_of_the_command_line():
    assert rank_command.without_ranks(["-n", "4", "--json"]) == ["--json"]
    assert rank_command.without_ranks(["--quick", "-n4", "--ranks=4"]) == ["--quick"]


# ---- it can fail ------------------------------------------------------------------------------------------

# Wraps calls of torch.distributed so that one rank gets one wrong element, then runs the self-test.
SABOTAGE = """
import functools
import sys
import torch
import torch.distributed as dist
from mpi_backend import selftest

def wrap(name, position):
    original = getattr(dist, name)
    @functools.wraps(original)
    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        target = args[position]
        target = target[0] if isinstance(target, list) else target
        if dist.get_rank() == int(sys.argv[1]) and target.numel() > 1000 and target.dtype == torch.float32:
            if not kwargs.get("async_op"):
                target.view(-1)[-1] += 1
        return result
    setattr(dist, name, call)

for name in sys.argv[2].split(","):
    wrap(name, 0)
sys.exit(selftest.main(["--quick", "--json"]))
"""


def test_one_wrong_element_on_one_rank_fails(tmp_path):
    script = tmp_path / "sabotage.py"
    script.write_text(SABOTAGE)
    gather, scatter = renamed.all_gather_single.__name__, renamed.reduce_scatter_single.__name__
    broken = {
        "all_reduce": "all_reduce", "broadcast": "broadcast", "all_gather": "all_gather", gather: gather,
        "reduce_scatter": "reduce_scatter", scatter: scatter, "all_to_all_single": "all_to_all_single",
        "recv": "send, recv",
    }  # fmt: skip
    result = mpi_gdr("run", "-n", "2", str(script), "1", ",".join(broken))
    assert result.returncode == 1, result.stdout + result.stderr
    report = report_of(result)
    failed = {row["operation"] for row in report["operations"] if not row["ok"]}
    assert set(broken.values()) <= failed
    # Otherwise only operations built from the same calls may fail.
    built_from_them = {"all_to_all_single uneven", "coalesced", "recv from any"}
    assert failed - set(broken.values()) <= built_from_them
    rows = {row["operation"]: row for row in report["operations"]}
    failure = rows["all_reduce"]["failures"][0]
    assert failure["rank"] == 1 and failure["dtype"] == "float32" and failure["op"] == "sum"
    assert failure["count"] == "1001" and failure["index"] == "1000"
    assert float(failure["got"]) == float(failure["expected"]) + 1
    assert rows["all_reduce"]["differ"] > 0  # digests differ too


RAISES = """
import os, sys, time, torch.distributed as dist
from pathlib import Path
from mpi_backend import selftest
def broken(*args, **kwargs): raise RuntimeError("sabotaged")
dist.barrier = broken
status, folder = selftest.main(["--quick", "--json"]), Path(sys.argv[0]).parent
(folder / f"status{os.environ['RANK']}").write_text(str(status))
while len(list(folder.glob("status*"))) < 2: time.sleep(0.01)  # a launcher ends all after one
sys.exit(status)
"""


def test_an_exception_fails_on_all_ranks(tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    result = mpi_gdr("run", "-n", "2", str(script))
    rows = {row["operation"]: row for row in report_of(result)["operations"]}
    assert [path.read_text() for path in sorted(tmp_path.glob("status*"))] == ["1", "1"]
    assert "sabotaged" in rows["recv from any"]["failures"][0]["got"]  # the first operation that calls it
    assert rows["new_group"]["not_run"] and rows["all_reduce"]["ok"]


# ---- the reference ----------------------------------------------------------------------------------------


def inputs(dtype, op, pattern, size, count=500):
    return [reference.values(dtype, count, r, size, op=op, pattern=pattern) for r in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100, 1000])
@pytest.mark.parametrize("dtype", operations.FLOATS)
@pytest.mark.parametrize("op", ["sum", "avg", "product", "premul_sum"])
def test_exact_pattern_has_one_result_in_any_order(size, dtype, op):
    """Folds in the dtype itself, forwards and backwards: no rounding may occur before a division."""
    contributions = inputs(dtype, op, "exact", size)
    if op == "premul_sum":
        contributions = [t * reference.FACTOR for t in contributions]
    expected = reference.reduced(inputs(dtype, op, "exact", size), op, "exact")
    for order in (contributions, contributions[::-1]):
        total = order[0].clone()
        for t in order[1:]:
            total = total * t if op == "product" else total + t
        if op == "avg":
            total = (total.double() / size).to(dtype)
        assert torch.equal(total, expected.values)


@pytest.mark.parametrize("size", [2, 3, 16])
@pytest.mark.parametrize("dtype", operations.FLOATS)
@pytest.mark.parametrize("op", ["sum", "avg", "product", "premul_sum"])
def test_bound_holds_for_a_rounding_at_each_step_and_not_for_a_lost_rank(size, dtype, op):
    contributions = inputs(dtype, op, "random", size)
    expected = reference.reduced(contributions, op, "random")

    def fold(tensors):
        factor = reference.FACTOR if op == "premul_sum" else 1
        total = tensors[0] * factor
        for t in tensors[1:]:
            total = total * t if op == "product" else total + t * factor
        return total / size if op == "avg" else total

    assert reference.compare(fold(contributions), expected)[0] is None
    mismatch, _ = reference.compare(fold(contributions[:-1]), expected)
    assert mismatch is not None and mismatch.wrong > 100


@pytest.mark.parametrize("dtype", operations.INTEGERS)
def test_integer_reductions_wrap_as_the_type_does(dtype):
    contributions = inputs(dtype, "sum", "exact", 3)
    for op, fold in (("sum", torch.Tensor.add), ("product", torch.Tensor.mul)):
        total = fold(fold(contributions[0].clone(), contributions[1]), contributions[2])
        assert torch.equal(reference.reduced(contributions, op, "exact").values, total)


@cases("dtype", torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn)
def test_compare_finds_one_flipped_bit(dtype):
    good = operations.data(dtype, 100, 0, operations.Plan(0, 2, (0,), (), lambda amount: amount))
    bad = good.clone()
    bad.view(torch.uint8)[42 * dtype.itemsize] ^= 1
    assert reference.compare(good.clone(), reference.Expected(good)) == (None, 0.0)
    mismatch, _ = reference.compare(bad, reference.Expected(good))
    assert (mismatch.index, mismatch.wrong) == (42, 1)


def test_nan_is_never_within_a_bound():
    expected = reference.reduced(inputs(torch.float32, "sum", "random", 2), "sum", "random")
    got = expected.values.clone()
    got[7] = float("nan")
    assert reference.compare(got, expected)[0].index == 7


# ---- reports ----------------------------------------------------------------------------------------------


def rank_report(digests, wrong=0):
    found = {"operation": "all_reduce", "cases": len(digests), "wrong": wrong, "worst": 0.5}
    return found | {"failures": [], "digests": digests}


def test_merge_compares_digests_between_ranks():
    same = [("op=sum", "aa"), ("op=max", "bb")]
    assert merge([rank_report(same), rank_report(same)])["ok"]
    other = merge([rank_report(same), rank_report([same[0], ("op=max", "cc")])])
    assert not other["ok"] and other["differ"] == 1
    assert other["failures"][0]["case"] == "op=max" and "cc" in other["failures"][0]["got"]
    assert not merge([rank_report(same), rank_report(same[:1])])["ok"]


def test_text_names_the_failure():
    failure = {"operation": "all_reduce", "rank": 1, "dtype": "int8", "got": "3", "expected": "4"}
    row = {**merge([rank_report([], wrong=1)]), "failures": [failure]}
    info = {"mpi_gdr": "1", "torch": "2", "backend": "mpi-gdr", "ranks": 2}
    text = as_text({"info": info, "device": "cpu", "forced": {}, "operations": [row], "ok": False})
    assert "FAILED all_reduce on rank 1: dtype=int8 got=3 expected=4" in text
    assert text.splitlines()[-1].startswith("mpi-gdr selftest: FAILED in all_reduce")
