"""Ranks that leave, die or are suspended: the others' errors name the rank and the reason within seconds."""

import re
from pathlib import Path

import pytest
from support import processes

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_shared_memory_left")]

PROGRAMS = Path(__file__).parent / "programs"


RANK_PATTERN = r"rank {} \(host \S+, pid \d+\) "
ENDS = {
    "exit": (2, "has left the job: its program ended with open process groups"),
    "raise": (3, "has left the job: .* an uncaught exception, ArithmeticError: this rank fails"),
    "kill": (4, r"is gone: its process has ended"),
    "stop": (5, r"has been silent for \d\.\d s: its process is stopped"),
}


def test_ranks_that_leave_are_named_and_the_others_go_on():
    results = processes.run_apart(6, PROGRAMS / "leaver.py", timeout=110, MPI_GDR_HEARTBEAT="2")
    # The last one catches its error and ends as if it had succeeded.
    assert [result.status for result in results] == [5, 5, 3, 1, -9, 121], [r.tail(500) for r in results]
    for result in results[:2]:
        output = result.output
        for way, (leaver, text) in ENDS.items():
            line = rf"^{way}: after (\S+) s: mpi-gdr: (all_reduce seq|recv).*?$"
            match = re.search(line, output, re.MULTILINE)
            assert match and re.search(RANK_PATTERN.format(leaver) + text, match[0]), output
            # Not a measurement: otherwise the group's timeout, 60 s, would apply.
            assert float(match[1]) < 30, output
            again = rf"^{way}, again: after \S+ s: mpi-gdr: all_reduce: .*rank {leaver} "
            assert re.search(again, output, re.MULTILINE), output
            assert f"{way}, rest: no error" in output
        refused = r"new group: after \S+ s: .* cannot be made: rank \d .*(is gone|has ended|has been silent)"
        assert re.search(refused, output), output
    assert "the other ranks continue without this one: rank 5" in results[5].output


def test_a_rank_that_is_killed_between_two_groups_is_named(tmp_path):
    results = processes.run_apart(3, PROGRAMS / "killed_between.py", str(tmp_path), timeout=90)
    for result in (results[0], results[2]):
        match = re.search(
            r"^after (\S+) s: .*" + RANK_PATTERN.format(1) + "is gone", result.output, re.MULTILINE
        )
        assert match and float(match[1]) < 30, result.tail()  # the deadline is a minute


def test_mpi_abort_of_one_rank_ends_all_without_a_launcher():
    results = processes.run_apart(2, PROGRAMS / "ends.py", "mpi_abort", timeout=60)
    assert "rank 1 called MPI_Abort with code 42" in results[1].expect(42)
    assert "rank 1 called MPI_Abort with code 42" in results[0].expect(1)


def test_forked_children_get_errors_and_leave_the_parent_alone():
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", PROGRAMS / "forker.py"]
    output = processes.run(command, 90).expect(0)
    assert output.count("is done") == 2
    # The ranks unlink shared memory once all have mapped it.
    assert output.count("shared memory: some, with a name: 0") == 2, output
    for call in ("all_reduce", "isend", "new_group", "wait", "sequence", "destroy"):
        errors = re.findall(rf"{call}: .*?this process was forked after init_process_group", output)
        assert len(errors) == 4, (call, output)  # two ranks, two ways to fork


def test_nothing_from_the_network_is_unpickled():
    package = Path(__file__).parents[2] / "mpi_backend"
    sources = [path for path in package.rglob("*.py") if path.parent.name != "diagnose"]
    assert sources
    for source in sources:  # diagnose reads files, and plain containers only
        imports = r"^\s*(import|from) (pickle|marshal|shelve|dill)\b"
        assert not re.search(imports, source.read_text(), re.MULTILINE), source
