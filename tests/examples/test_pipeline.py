"""examples/pipeline.py: the gradients of one process, and the bubbles that theory says."""

import json
from pathlib import Path

import pytest
from support import processes

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.py"


def check(ranks, microbatches, out):
    arguments = [f"--microbatches={microbatches}", "--steps=1", "--block-size=8", "--channels=16"]
    command = [*processes.MPI_GDR_RUN, "-n", str(ranks), EXAMPLE, *arguments, "--device=cpu", f"--out={out}"]
    processes.run(command).expect(0)
    table = json.loads((out / "result.json").read_text())["table"]
    assert set(table) == {"1F1B", "zero bubble", "DualPipeV"}
    for row in table.values():
        assert row["gradient_difference"] < 1e-12 and row["ms"] > 0 and 0 < row["bubbles"] < 1
    assert table["1F1B"]["ideal"] == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert table["1F1B"]["held"] == 2 * ranks
    assert 0 < table["zero bubble"]["ideal"] < table["1F1B"]["ideal"]
    assert 0 < table["DualPipeV"]["ideal"] < table["1F1B"]["ideal"]
    assert (out / "pipeline.png").stat().st_size > 0


def test_two_ranks(tmp_path):
    check(2, 4, tmp_path)


@pytest.mark.full
def test_four_ranks(tmp_path):
    check(4, 8, tmp_path)
