"""examples/moe.py: experts on two ranks give the gradients and losses of one process that holds them all."""

import json
import sys
from pathlib import Path

import pytest
from support import processes

EXAMPLE = Path(__file__).parents[2] / "examples" / "moe.py"
SMALL = ["--experts=6", "--iterations=4", "--batch-size=6", "--block-size=16", "--channels=16"]


def run(command, ranks, out):
    processes.run([*command, EXAMPLE, *SMALL, "--device=cpu", f"--out={out}"]).expect(0)
    assert (out / "moe.png").stat().st_size > 0
    result = json.loads((out / "result.json").read_text())
    assert result["ranks"] == ranks and result["gradient_difference"] < 1e-12
    assert len(result["losses"]) == 4 and result["losses"][3] < result["losses"][0]
    return result["losses"]


def test_gradients(tmp_path):
    run([*processes.MPI_GDR_RUN, "-n", "2"], 2, tmp_path)


@pytest.mark.full
def test_losses(tmp_path):
    alone = run([sys.executable], 1, tmp_path / "alone")
    for ranks in (2, 3):
        spread = run([*processes.MPI_GDR_RUN, "-n", str(ranks)], ranks, tmp_path / str(ranks))
        assert spread == pytest.approx(alone, abs=1e-4)
