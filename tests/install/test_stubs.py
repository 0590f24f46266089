"""mpi_backend/_C.pyi and _tools/*.pyi match the extensions."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))


# For the torch that `make` installs: another one's pybind11 may spell types differently.
@pytest.mark.skipif(torch.__version__.split(".")[:2] != ["2", "13"], reason="types of another pybind11")
def test_the_stubs_are_those_of_the_extensions():
    pytest.importorskip("pybind11_stubgen")  # from requirements.txt, not from the extra `test`
    import stubs

    files = stubs.PACKAGE.rglob("*.pyi")
    written = {str(path.relative_to(stubs.PACKAGE)): path.read_text() for path in files}
    assert written == stubs.stubs(), "run `make stubs`"
