"""examples/spatial.py: tiles give the output, gradients and losses of one process."""

import json
import sys
from pathlib import Path

import pytest
from support import processes

EXAMPLE = Path(__file__).parents[2] / "examples" / "spatial.py"


def run(command, ranks, out):
    arguments = ["--size=32", "--channels=4", "--iterations=3", "--device=cpu", f"--out={out}"]
    processes.run([*command, EXAMPLE, *arguments]).expect(0)
    assert (out / "spatial.png").stat().st_size > 0
    result = json.loads((out / "result.json").read_text())
    assert result["ranks"] == ranks and len(result["losses"]) == 3 and result["difference"] < 1e-12
    return result


def test_gradients(tmp_path):
    result = run([*processes.MPI_GDR_RUN, "-n", "2"], 2, tmp_path)
    assert result["error_without_halos"] > 1e-3  # so halos matter at this size


@pytest.mark.full
def test_losses(tmp_path):
    alone = run([sys.executable], 1, tmp_path / "alone")
    assert alone["error_without_halos"] == 0
    for ranks in (2, 4):  # 1 x 2 tiles and 2 x 2, where corners matter too
        tiles = run([*processes.MPI_GDR_RUN, "-n", str(ranks)], ranks, tmp_path / str(ranks))
        assert tiles["losses"] == pytest.approx(alone["losses"], abs=1e-5)
