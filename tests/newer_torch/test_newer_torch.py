"""Features of torch 2.14 and 2.15, also under Gloo's name, and their hooks in older tests.

CI has an older torch: `make wheel-check ARGS=2.15.0` runs these.
"""

import pytest
import torch
from support.spmd import run_spmd


# Under torchrun: after a failure ranks end without MPI_Finalize, and Hydra would kill running ones.
@pytest.mark.parametrize("size", [2, 4])
def test_features(tmp_path, size):
    assert run_spmd(tmp_path, "torchrun", size, "newer_torch/ranks/test_features.py") > 0


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch 2.14 attaches no flight recorder")
def test_flight_recorder(tmp_path):
    assert run_spmd(tmp_path, "torchrun", 2, "newer_torch/ranks/test_flight_recorder.py") > 0


def test_features_of_older_releases(tmp_path):
    assert run_spmd(tmp_path, "mpi-gdr run", 2, "spmd/ranks") > 0


@pytest.mark.parametrize("launcher", ["mpi-gdr run", "torchrun"])
def test_as_gloo(tmp_path, launcher):
    assert run_spmd(tmp_path, launcher, 2, "newer_torch/ranks/test_as_gloo.py", MPI_GDR_AS="gloo") > 0
