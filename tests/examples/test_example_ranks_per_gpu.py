"""examples/ranks_per_gpu.py on cores, at a tiny size. Does not check rates."""

import json
import sys

import pytest
from support import labs, processes
from support.building import load

EXAMPLE = labs.EXAMPLES / "ranks_per_gpu.py"
TINY = ["--preset=tiny", "--dropout=0", "--iterations=12", "--warm-up=2"]


@pytest.fixture(scope="module")
def example():
    return load(EXAMPLE)


def test_on_cores(tmp_path):
    command = [sys.executable, EXAMPLE, "--device=cpu", "--ranks=1,2", "--rounds=1", f"--out={tmp_path}"]
    assert "they agree" in processes.run([*command, *TINY], timeout=200).expect(0)
    report = json.loads((tmp_path / "results.json").read_text())
    assert [row["name"] for row in report["rows"]] == ["1 rank", "2 ranks"]
    assert all(rate > 0 for row in report["rows"] for rate in row["tokens_per_second"])
    assert report["rows"][0]["times_first"] == [1.0] and report["agree"]
    assert "| 2 ranks |" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_gpu_it_prints_why():
    output = processes.run([sys.executable, EXAMPLE], CUDA_VISIBLE_DEVICES="").expect(1)
    assert "no GPU is visible here; --device cpu" in output


def test_contenders_on_gpus(example):
    class Arguments:
        device, ranks, mps = "cuda", "1,4", "both"

    plain = {"1 rank": (1, False), "4 ranks": (4, False)}
    expected = plain | {"1 rank, MPS": (1, True), "4 ranks, MPS": (4, True)}
    assert example.contenders(Arguments) == expected


def test_losses_that_differ_are_found(example):
    same = {"losses": {0: 4.5, 5: 4.0}}
    assert example.disagreement({"a": [same], "b": [same]}) == 0
    assert example.disagreement({"a": [same], "b": [same, {"losses": {0: 4.5, 5: 4.25}}]}) == 0.25
    assert example.disagreement({"a": [same], "b": [{"losses": {0: 4.5, 5: float("nan")}}]}) == float("inf")
