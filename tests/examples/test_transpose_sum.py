"""examples/transpose_sum.py adds an array and its transpose, by torch and by mpi4py, as NumPy does."""

import sys

import numpy as np
import pytest
from support import labs, processes


def test_uneven_shares(tmp_path):
    """The example compares each rank's rows with NumPy's, and exits with 1 if they differ."""
    arguments = ["--blocks=5", "--block-size=8", "--rounds=2"]
    output, result = labs.run("transpose_sum.py", tmp_path, *arguments, ranks=3)
    assert "exchange by torch" in output and "exchange by mpi4py" in output
    assert result["array"] == "40 x 40" and result["equal_to_numpy"]
    randoms = [np.random.default_rng((row, column)) for row in range(5) for column in range(5)]
    total = sum((random.random() + 0.1 * random.random((8, 8))).sum() for random in randoms)
    assert result["sum"] == pytest.approx(2 * total, rel=1e-12)
    assert labs.is_picture(tmp_path / "transpose_sum.png")


@pytest.mark.full
def test_other_backends_go_without_mpi4py(tmp_path):
    output, result = labs.run("transpose_sum.py", tmp_path, "--block-size=8", "--backend=gloo")
    assert "without mpi4py" in output and "mpi4py_exchange_ms" not in result and result["equal_to_numpy"]


@pytest.mark.full
def test_too_few_blocks():
    output = processes.run([sys.executable, labs.EXAMPLES / "transpose_sum.py", "--blocks=0"]).expect(2)
    assert "--blocks 0: expected one or more for each of 1 ranks" in output
