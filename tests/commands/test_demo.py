"""`mpi-gdr demo`: trains over both backends with equal results, and reports them."""

import io
import re
import sys
from pathlib import Path

import pytest
from support import processes
from support.command import copy_package, mpi_gdr, mpi_gdr_output

from mpi_backend import bar, demo
from mpi_backend.demo import report

ROOT = Path(__file__).parents[2]
RESULT = {
    "backend": "mpi-gdr", "step_s": 0.05, "sum_s": 0.001, "loss": 2.0, "val_loss": 2.1,
    "digests": ["ab" * 32] * 2,
}  # fmt: skip


def test_trains_over_both_with_the_same_bits():
    output = mpi_gdr_output("demo", "--steps", "12")
    rows = re.findall(r"^(mpi-gdr|Gloo) +[\d.]+ +[\d.]+ +(\d\.\d{4}) +(\d\.\d{4})$", output, re.MULTILINE)
    assert [row[0] for row in rows] == ["mpi-gdr", "Gloo"]
    assert 2 < float(rows[0][2]) < 4.4  # nats per character; ln(97) = 4.57 untrained
    # A sum of two numbers does not depend on their order.
    assert rows[0][1:] == rows[1][1:]
    bits = r"^(mpi-gdr|Gloo): all 2 ranks hold the same bits, .* (\w{12})$"
    hashes = re.findall(bits, output, re.MULTILINE)
    assert [name for name, _ in hashes] == ["mpi-gdr", "Gloo"] and hashes[0][1] == hashes[1][1]
    assert re.search(r"Over mpi-gdr a step is \d+\.\d\dx (fast|slow)er than over Gloo", output)
    assert all(len(line) <= 80 for line in output.splitlines()), output


def test_under_a_launcher_only_the_ranks_train():
    command = [*processes.TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "mpi_backend", "demo"]
    output = processes.run([*command, "--steps", "2", "--backend", "gloo"]).expect(0)
    assert "step 2 of 2: loss " in output and "hold the same bits" in output and "mpi-gdr" not in output


def test_a_job_that_fails_ends_it_with_a_sentence():
    result = mpi_gdr("demo", "--steps", "1", MPI_GDR_ALLREDUCE_ALGO="nope")
    assert result.returncode == 1
    assert "MPI_GDR_ALLREDUCE_ALGO" in result.stderr
    assert re.search(r"mpi-gdr demo: the job over mpi-gdr ended with status \d+", result.stderr)


def test_ranks_that_differ_are_a_failure(tmp_path):
    """The last bits of a parameter of rank 1 change."""
    variables = copy_package(tmp_path)
    with (tmp_path / "mpi_backend" / "demo" / "train.py").open("a") as program:
        program.write("""

train_right = train


def train(gpt: GPT, *arguments):
    found = train_right(gpt, *arguments)
    if dist.get_rank() == 1:
        next(gpt.parameters()).data[0, 0] *= 1 + 1e-6
    return found
""")
    result = mpi_gdr("demo", "--steps", "1", **variables)
    assert result.returncode == 1, result.stdout + result.stderr
    for name in ("mpi-gdr", "Gloo"):
        differ = rf"^{name}: the parameters of the ranks DIFFER, SHA-256 (\w{{12}}), (\w{{12}})$"
        found = re.search(differ, result.stdout, re.MULTILINE)
        assert found and found[1] != found[2], result.stdout


def test_a_job_that_fails_behind_its_report_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(demo, "run_job", lambda backend, ranks, steps: (RESULT, 9))
    assert demo.run_jobs(2, 1) == 1
    assert "the job over mpi-gdr ended with status 9" in capsys.readouterr().err


def test_a_backend_without_a_launcher_is_refused(capsys):
    with pytest.raises(SystemExit) as status:
        demo.main(["--backend", "gloo"])
    assert status.value.code == 2 and "--backend needs a launcher" in capsys.readouterr().err


def test_a_slower_step_is_called_slower():
    ours, other = RESULT | {"step_s": 0.2}, RESULT | {"backend": "gloo", "step_s": 0.1, "sum_s": 0.004}
    text = " ".join(report.comparison(ours, other))
    assert "a step is 2.00x slower than over Gloo" in text
    assert "an all_reduce of the gradients alone 4.00x faster" in text


def test_the_page_shows_the_output():
    times = ({"step_s": 0.0486, "sum_s": 0.000499}, {"step_s": 0.0553, "sum_s": 0.00211, "backend": "gloo"})
    digests = ["0152499b406b"] * 2
    results = [RESULT | {"loss": 2.298, "val_loss": 2.3412, "digests": digests} | time for time in times]
    lines = [*report.table(results), *map(report.bits, results), *report.comparison(*results)]
    page = (ROOT / "docs" / "install.md").read_text()
    assert [line for line in lines if f"    {line}\n" not in page] == []


@pytest.mark.parametrize(("terminal", "kind"), [(True, "xterm"), (True, "dumb"), (False, "xterm")])
def test_the_bar_is_for_a_terminal(terminal, kind, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", kind)
    seconds = iter([100.0, 102.0])
    monkeypatch.setattr(bar.time, "monotonic", lambda: next(seconds))
    with bar.Bar("Gloo") as shown:
        shown.show(1, 4, "loss 3.1" * 10)
        shown.show(2, 4, "loss 3.0" * 10)
        shown.print("a warning")
    *before, last = stream.getvalue().split("\n")
    if not terminal or kind == "dumb":
        assert (before, last) == (["a warning"], "")
        return
    (drawn,) = before
    _, first, second, warning = drawn.split(bar.ERASE)
    assert "[######......" in first and " 25 %  loss 3.1" in first and len(first) == 59
    assert "[############......" in second and " 50 %  4 s left  loss 3" in second and len(second) == 59
    assert warning == "a warning" and last == bar.ERASE
