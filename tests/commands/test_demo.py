"""`mpi-gdr demo`: trains over both backends with the same result, and says what it found."""

import io
import re
import sys

import pytest
from support import processes
from support.command import mpi_gdr

from mpi_backend import bar, demo
from mpi_backend.demo import report

RESULT = {
    "backend": "mpi-gdr",
    "step_s": 0.05,
    "sum_s": 0.001,
    "loss": 2.0,
    "val_loss": 2.1,
    "digests": ["ab" * 32] * 2,
}


def test_trains_over_both_with_the_same_bits():
    result = mpi_gdr("demo", "--steps", "12")
    assert result.returncode == 0, result.stdout + result.stderr
    rows = re.findall(
        r"^(mpi-gdr|Gloo) +[\d.]+ +[\d.]+ +(\d\.\d{4}) +(\d\.\d{4})  equal bits, SHA-256 (\w{12})$",
        result.stdout,
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["mpi-gdr", "Gloo"]
    # A sum of two does not depend on the order.
    assert rows[0][1:] == rows[1][1:]
    assert 2 < float(rows[0][2]) < 4.4  # nats a character; ln(97) = 4.57 untrained
    assert re.search(r"Over mpi-gdr a step is \d+\.\d\dx (fast|slow)er than over Gloo", result.stdout)


def test_under_a_launcher_only_the_ranks_train():
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "mpi_backend", "demo"]
    output = processes.run([*command, "--steps", "2", "--backend", "gloo"]).expect(0)
    assert "step 2 of 2: loss " in output and "equal bits" in output and "mpi-gdr" not in output


def test_a_job_that_fails_ends_it_with_a_sentence():
    result = mpi_gdr("demo", "--steps", "1", MPI_GDR_ALLREDUCE_ALGO="nope")
    assert result.returncode == 1
    assert "MPI_GDR_ALLREDUCE_ALGO" in result.stderr
    assert re.search(r"mpi-gdr demo: the job over mpi-gdr ended with status \d+", result.stderr)


def test_ranks_that_differ_are_a_failure(monkeypatch, capsys):
    different = RESULT | {"digests": ["ab" * 32, "cd" * 32]}
    found = {"mpi-gdr": different, "gloo": RESULT | {"backend": "gloo", "step_s": 0.1}}
    monkeypatch.setattr(demo, "run_job", lambda backend, ranks, steps: (found[backend], 0))
    assert demo.run_jobs(2, 1) == 1
    output = capsys.readouterr().out
    assert "DIFFERENT, SHA-256 abababababab, cdcdcdcdcdcd" in output
    assert "a step is 2.00x faster than over Gloo, a sum of the gradients 1.00x faster" in output
    found["mpi-gdr"] = RESULT
    assert demo.run_jobs(2, 1) == 0


def test_a_slower_step_is_called_slower():
    text = report.comparison(RESULT | {"step_s": 0.2}, RESULT | {"backend": "gloo", "step_s": 0.1})
    assert "2.00x slower than over Gloo" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_is_for_a_terminal(terminal, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    with bar.Bar("Gloo") as shown:
        shown.show(1, 4, "loss 3.1" * 10)
        shown.print("a warning")
    *before, last = stream.getvalue().split("\n")
    if not terminal:
        assert (before, last) == (["a warning"], "")
        return
    (drawn,) = before
    _, line, warning = drawn.split(bar.ERASE)
    assert "██████░░░░" in line and " 25 % " in line and "s left  loss 3.1" in line and len(line) == 59
    assert warning == "a warning" and last == bar.ERASE
