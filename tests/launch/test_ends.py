"""Ends of jobs without a rank's death: a killed launcher, Ctrl-C, a failure that the program ignores; and a
process that initialises again with another rank."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import processes
from support.processes import wait_until

from mpi_backend import diagnose

pytestmark = pytest.mark.usefixtures("no_shared_memory_left")
PROGRAMS = Path(__file__).parent / "programs"
ENDS = PROGRAMS / "ends.py"
PREFIX = "mpi_gdr_trace_rank_"


@contextlib.contextmanager
def orphans(folder: Path, grace: str) -> Iterator[processes.Program]:
    """Two ranks whose torchrun was killed; files hold their status. Their parent is a shell."""
    words = f'"{sys.executable}" "{ENDS}" orphan "{folder}" & echo $! > "{folder}/pid$RANK"; wait $!'
    script = f'{words}; echo $? > "{folder}/new$RANK"; mv "{folder}/new$RANK" "{folder}/status$RANK"'
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", script]
    with processes.Program(command, processes.clean_environment(MPI_GDR_ORPHAN_GRACE=grace)) as program:
        try:
            wait_until(lambda: len(list(folder.glob("ready*"))) == 2, 90)
            os.kill(program.process.pid, signal.SIGKILL)
            yield program
        finally:
            for path in folder.glob("pid*"):
                if not (folder / f"status{path.name[-1]}").exists():
                    os.kill(int(path.read_text()), signal.SIGKILL)


def test_ranks_whose_torchrun_was_killed_report_it_and_end(tmp_path):
    with orphans(tmp_path, "3") as program:
        wait_until(lambda: len(list(tmp_path.glob("status*"))) == 2, 40)
        statuses = [path.read_text().strip() for path in tmp_path.glob("status*")]
        output = program.finish(10).output
    assert statuses == ["122", "122"], output
    ended = r"torchrun's agent \(pid \d+\), which started this rank, has ended"
    assert len(re.findall(ended + r": this rank ends in 3 s \(MPI_GDR_ORPHAN_GRACE\)", output)) == 2, output
    assert len(re.findall(ended + r".*Ending this process", output)) == 2, output


def test_ranks_whose_torchrun_was_killed_go_on_where_that_is_asked_for(tmp_path):
    with orphans(tmp_path, "0") as program:
        started = time.time()
        wait_until(lambda: list(tmp_path.glob("status*")), 5)  # agents are checked every 0.25 s
        statuses = list(tmp_path.glob("status*"))
        rounds = [path.stat().st_mtime for path in tmp_path.glob("ready*")]
        output = program.finish(1).output
    assert statuses == [] and len(rounds) == 2, output
    assert min(rounds) > started + 3, "the ranks are there, and do nothing"
    assert "torchrun's agent" not in output


def test_one_interrupt_ends_a_deadlocked_job(tmp_path):
    command = [processes.mpiexec(), "-n", "2", sys.executable, ENDS, "deadlock", tmp_path]
    with processes.Program(command, processes.clean_environment()) as program:
        wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 2, 90)
        os.killpg(program.process.pid, signal.SIGINT)  # as a terminal does
        program.finish(30).expect_failure()


def test_an_interrupt_ends_a_wait(tmp_path):
    """Without a launcher. The other rank gets an error."""
    with contextlib.ExitStack() as stack:
        programs = processes.start_apart(stack, 2, ENDS, "deadlock", str(tmp_path))
        wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 2, 90)
        os.kill(programs[1].process.pid, signal.SIGINT)
        results = [program.finish(40) for program in programs]
    assert "KeyboardInterrupt" in results[1].output and results[1].status not in (None, 0), results[1].tail()
    # Depends on which of the two rank 0 detects first.
    line = r"rank 1 \(host \S+, pid \d+\) (has left group \S+: the program was interrupted"
    line += r"|has left the job: its program ended with .*KeyboardInterrupt)"
    assert results[0].status == 1 and re.search(line, results[0].output), results[0].tail()


@pytest.mark.parametrize("what", ["called", "left"])
def test_a_failure_without_a_waiter_is_reported(tmp_path, capsys, what):
    """Under mpiexec, which ends all ranks with the first one: every rank has written its log by then."""
    command = [processes.mpiexec(), "-n", "3", sys.executable, ENDS, "ignored_failure", what]
    result = processes.run(command, 60, MPI_GDR_FLIGHT_DIR=str(tmp_path))
    assert result.status not in (None, 0), result.tail()
    logs = [tmp_path / f"{PREFIX}{rank}" for rank in range(3)]
    assert all(log.exists() for log in logs), result.tail()

    def diagnosis() -> str:
        assert diagnose.main([str(tmp_path)]) == 1, result.tail()
        return capsys.readouterr().out

    text = diagnosis()
    found = {
        "called": r"First divergence, rank 1: .*seq=1: different calls: ranks 0, 2 called all_reduce .*; "
        r"rank 1 called broadcast",
        "left": r"First divergence, rank 1: .*seq=1: rank 1 never called all_reduce .*, in which ranks 0, 2 ",
    }
    assert re.search(found[what], text), text
    for missing in range(3):  # diagnosis works on the remaining logs
        kept = logs[missing].read_bytes()
        logs[missing].unlink()
        text = diagnosis()
        assert re.search(r"First divergence, .*seq=1: .*all_reduce", text), (missing, text)
        assert f"No log from rank {missing} of 3." in text
        logs[missing].write_bytes(kept)


@pytest.mark.parametrize("status", [0, 3])
def test_a_rank_that_ends_after_a_failure_reports_it_and_the_others_live_on_unless_it_failed(status):
    """MPICH's launcher would kill them in either case, and report status 0."""
    program = [sys.executable, ENDS, "ends_first", str(status)]
    output = processes.run([processes.mpiexec(), "-n", "2", *program], 55).expect(status)
    assert ("rank 1 has saved its results" in output) == (status == 0), output
    warning = "[0/2] mpi-gdr WARN INIT this rank does not call MPI_Finalize: a group was aborted"
    assert warning in output, output


@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_process_may_initialise_again_with_another_rank(tmp_path, launcher):
    program = [PROGRAMS / "again.py", "env" if launcher == "torchrun" else tmp_path]
    assert processes.run([*processes.launched(launcher, 3), *program], 90).expect(0).count("is done") == 3
