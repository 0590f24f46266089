"""examples/kmeans.py finds the centres of scikit-learn, with the same bits on any number of ranks."""

import sys

import pytest
from support import labs, processes

SMALL = ["--points=6000", "--iterations=60"]


def test_any_number_of_ranks(tmp_path):
    _, alone = labs.run("kmeans.py", tmp_path, *SMALL, ranks=1)
    assert alone["inertia"] == pytest.approx(alone["inertia_of_scikit_learn"], rel=1e-9)
    assert alone["iterations"] > 5
    assert labs.is_picture(tmp_path / "kmeans.png")
    _, three = labs.run("kmeans.py", tmp_path, *SMALL, ranks=3)
    assert three["centres"] == alone["centres"]  # exactly
    assert three["iterations"] == alone["iterations"]
    assert three["inertia"] == pytest.approx(alone["inertia"], rel=1e-12)


@pytest.mark.full
def test_other_memory_and_backend(tmp_path):
    arguments = [*SMALL, "--dimensions=3"]
    _, numpy = labs.run("kmeans.py", tmp_path, *arguments)
    _, torch = labs.run("kmeans.py", tmp_path, *arguments, "--arrays=torch", "--backend=gloo")
    assert torch["centres"] == numpy["centres"]
    _, stopped = labs.run("kmeans.py", tmp_path, *arguments, "--iterations=3")
    assert stopped["iterations"] == 3
    assert stopped["inertia"] == pytest.approx(stopped["inertia_of_scikit_learn"], rel=1e-9)


@pytest.mark.full
def test_too_few_points():
    output = processes.run([sys.executable, labs.EXAMPLES / "kmeans.py", "--points=100"]).expect(2)
    assert "--points 100: expected 60 or more for each of --clusters 8" in output
