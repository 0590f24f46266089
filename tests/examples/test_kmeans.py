"""examples/kmeans.py finds scikit-learn's centres, with the same bits on any number of ranks."""

import sys

import pytest
from support import labs, processes

SMALL = ["--points=6000", "--iterations=60"]


def test_any_number_of_ranks(tmp_path):
    _, alone = labs.run("kmeans.py", tmp_path, *SMALL, ranks=1)
    assert alone["inertia"] == pytest.approx(alone["inertia_of_scikit_learn"], rel=1e-9)
    assert alone["iterations"] > 5
    assert labs.is_picture(tmp_path / "kmeans.png")
    same_as(alone, tmp_path, ranks=2)


def same_as(other, tmp_path, ranks):
    """The result, which must equal another run's."""
    _, result = labs.run("kmeans.py", tmp_path, *SMALL, ranks=ranks)
    assert result["centres"] == other["centres"]  # bit for bit
    assert result["iterations"] == other["iterations"]
    assert result["inertia"] == pytest.approx(other["inertia"], rel=1e-12)
    return result


@pytest.mark.full
def test_more_ranks(tmp_path):
    _, alone = labs.run("kmeans.py", tmp_path, *SMALL, ranks=1)
    same_as(same_as(alone, tmp_path, ranks=3), tmp_path, ranks=7)  # 60 blocks are not divisible by 7


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


@pytest.mark.full
def test_missing_packages_are_reported_first(tmp_path):
    blocked = "import sys\nsys.modules.update(dict.fromkeys(['numpy', 'matplotlib', 'rich', 'sklearn']))\n"
    (tmp_path / "sitecustomize.py").write_text(blocked)
    program = [sys.executable, labs.EXAMPLES / "kmeans.py", f"--out={tmp_path}"]
    output = processes.run(program, PYTHONPATH=str(tmp_path)).expect(1)
    assert "kmeans.py needs numpy: pip install numpy" in output and "Traceback" not in output
    (tmp_path / "sitecustomize.py").write_text(blocked.replace("'numpy', ", ""))
    output = processes.run([*program, *SMALL], PYTHONPATH=str(tmp_path)).expect(0)
    assert "matplotlib is not installed" in output and "scikit-learn is not installed" in output
    assert "result: iterations" in output and not (tmp_path / "kmeans.png").exists()
