"""The examples of sharded and three-dimensional parallelism have one process's losses."""

import shutil
import sys
from pathlib import Path

import pytest
from support import processes

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--layers=2", "--heads=2", "--channels=32", "--block-size=32", "--batch-size=24"]
TINY += ["--text-bytes=400000", "--device=cpu"]
ALONE = processes.launched("torchrun", 1)


def losses(command, out, *arguments):
    """{(kind, iteration): loss} of a successful run."""
    processes.run([*command, *TINY, f"--out={out}", *arguments], timeout=240).expect(0)
    records = processes.json_lines(out / "log.jsonl")
    return {(r["kind"], r["iteration"]): r["loss"] for r in records if "loss" in r}


def mpi_gdr_run(size, script):
    return [*processes.launched("mpi-gdr run", size), EXAMPLES / script]


def test_fsdp(tmp_path):
    arguments = ["--iterations=6", "--save-every=3"]
    whole = losses(mpi_gdr_run(2, "fsdp.py"), tmp_path / "whole", *arguments)
    assert len(whole) == 6 + 2 and whole["train", 5] < whole["train", 0] - 0.1
    alone = losses([*ALONE, EXAMPLES / "fsdp.py", "--backend=gloo"], tmp_path / "alone", *arguments)
    assert whole == pytest.approx(alone, abs=1e-4)
    # As if stopped after the checkpoint; resumes with other shards.
    shutil.rmtree(tmp_path / "whole" / "checkpoint-6")
    resumed = losses(mpi_gdr_run(3, "fsdp.py"), tmp_path / "whole", "--resume", *arguments)
    assert resumed == pytest.approx(whole, abs=1e-4)
    assert (tmp_path / "whole" / "checkpoint-6" / ".metadata").exists()
    # On one process without a launcher.
    shutil.rmtree(tmp_path / "whole" / "checkpoint-6")
    command = [sys.executable, EXAMPLES / "fsdp.py"]
    assert losses(command, tmp_path / "whole", "--resume", *arguments) == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.full)])
def test_parallel3d(tmp_path, ranks):
    """2 pipeline x 2 tensor; the rest is data parallel."""
    parallel = losses(mpi_gdr_run(ranks, "parallel3d.py"), tmp_path / "parallel", "--iterations=3")
    alone = losses([sys.executable, EXAMPLES / "parallel3d.py"], tmp_path / "alone", "--iterations=3")
    assert len(alone) == 3 and alone["train", 2] < alone["train", 0] - 0.1
    assert parallel == pytest.approx(alone, abs=1e-4)
