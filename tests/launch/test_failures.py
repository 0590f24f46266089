"""Missing ranks, lost groups, wrong configuration. No launcher, because it would end waiting ranks."""

import re
from pathlib import Path

import pytest
from support import processes
from support.cases import cases

PROGRAMS = Path(__file__).parent / "programs"


MISSING = {
    "all_reduce": r"all_reduce seq=1 float64\[3, 5\] op=sum .*group=\S+ rank={}/3; still waiting for rank",
    "future": r"all_reduce seq=1 float64\[3, 5\] op=sum .*group=\S+ rank={}/3; still waiting for rank",
    "recv": r"recv float64\[3, 5\] from=2 tag=77 algorithm=shm group=\S+ rank={}/3; still waiting for rank 2",
}


@pytest.mark.warm
def test_missing_rank_is_named_within_the_deadline(tmp_path):
    results = processes.run_apart(3, PROGRAMS / "late.py", str(tmp_path), timeout=90)
    outputs = [result.expect(0) for result in results]
    for call, text in MISSING.items():
        for rank, output in enumerate(outputs[:2]):
            assert re.search(rf"{call}: mpi-gdr: timed out after \d.*: " + text.format(rank), output), output
            later = "then: mpi-gdr: all_reduce: the group failed earlier: timed out"
            assert f"{call}, {later}" in output, output
        # Ranks that wait for the late rank itself name it.
        named = rf"^{call}: .*still waiting for ranks? .*\b2\b"
        assert any(re.search(named, output, re.MULTILINE) for output in outputs), outputs


def test_groups_that_are_aborted_time_out_or_fail():
    """Also: messages of another length, and the state of Work and backend afterwards."""
    for result in processes.run_apart(2, PROGRAMS / "failed_groups.py"):
        output = result.expect(0)
        assert re.search(r"done\n.*does not call MPI_Finalize: .*\n$", output), output


UNSETTLED = """
import sys, time, datetime
import torch
import torch.distributed as dist
dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=1))
if dist.get_rank() == 1:
    time.sleep(3)
    sys.exit(3)
work = dist.all_reduce(torch.ones(3), async_op=True)
try:
    work.wait() if sys.argv[1] == "thrown" else time.sleep(2)
except dist.DistBackendError as error:
    print(error)
"""


@pytest.mark.parametrize("caught", ["thrown", "unnoticed"])
def test_the_last_line_repeats_no_error_that_the_program_has_caught(tmp_path, caught):
    program = tmp_path / "unsettled.py"
    program.write_text(UNSETTLED)
    output = processes.run_apart(2, program, caught)[0].expect(121)
    assert output.count("timed out after") == 1, output
    last = output.splitlines()[-1]
    assert "FATAL" in last and "process group 0 has failed" in last, output
    assert ("timed out after" in last) == (caught == "unnoticed")


def plain(ranks, **variables):
    return processes.run([*processes.launched("mpi-gdr run", ranks), PROGRAMS / "plain.py"], **variables)


@pytest.mark.warm
def test_unknown_variable_warns_once_a_job_with_the_nearest_name():
    output = plain(3, MPI_GDR_TIMEOUTS="3").expect(0)
    named = re.findall(r"MPI_GDR_TIMEOUTS is not a variable of mpi-gdr; did you mean (\w+)\?", output)
    assert named == ["MPI_GDR_TIMEOUT"]


@pytest.mark.warm
@cases(
    "name, value, expected",
    ("MPI_GDR_TIMEOUT", "soon", "seconds > 0"),
    ("MPI_GDR_ALLREDUCE_ALGO", "rnig", "expected one of recursive_doubling, ring, .*native"),
    ("MPI_GDR_LANES", "0", r"1\.\.16"),
    ("MPI_GDR_SIMD", "sse9", "auto, baseline, avx2, avx512 or avx512_bf16"),
)
def test_bad_value_is_an_error_that_names_the_variable(name, value, expected):
    output = plain(1, **{name: value}).expect_failure()
    assert re.search(rf"mpi-gdr: {name}={value} .*{expected}", output), output


@pytest.mark.warm
def test_debug_levels():
    output = plain(1, MPI_GDR_DEBUG="TRACE").expect(0)
    assert re.search(r"bootstrap launcher.*thread level multiple", output), output
    assert re.search(r"COLL.*all_reduce seq=0 float32\[1000\] op=sum", output), output
