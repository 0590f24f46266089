"""tools/gpu_report.py on a made-up folder of gpu_check.sh: matrix, predictions, archive."""

import hashlib
import importlib.util
import json
import tarfile
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "gpu_report.py"
spec = importlib.util.spec_from_file_location("gpu_report", TOOL)
gpu_report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_report)

STEPS = "suite, 2 ranks\tpassed\t12.5\t424 passed\nDDP, 2 ranks\tran past 60 s\t60.0\ta | b\n"


def pair(owner, peer, gb, error=""):
    return {
        "owner": owner,
        "peer": peer,
        "error": error,
        "right": not error,
        "read": [1, gb],
        "write": [1, 2 * gb],
    }


def timed(collective, total, us, factor):
    cell = {"p50_us": us, "algbw": 3.0, "busbw": 3.0 * factor}
    rows = [{"bytes": total, "in_place": cell, "out_of_place": None}]
    return {"collective": collective, "info": {"ranks": 2}, "rows": rows}


@pytest.fixture
def out(tmp_path):
    for name in ("logs", "logs/bench", "logs/training", "wheels"):
        (tmp_path / name).mkdir()
    (tmp_path / "wheels" / "large.whl").touch()
    (tmp_path / "logs" / "notes.txt").write_text("distinct GPUs, 2 ranks\t2\n")
    pairs = [pair(a, b, 4000 if a == b else 100) for a in (0, 1) for b in (0, 1)]
    (tmp_path / "peers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"gpu": 0}, *pairs]))
    answers = {
        "stream wait: round-trip, CUDA_DEVICE_MAX_CONNECTIONS=32": "median 10.0 us, 90th percentile 12 us"
    }
    (tmp_path / "gpu_probe.json").write_text(json.dumps({"answers": answers}))
    for name, us in (("own", 700.0), ("nccl-of-torch", 650.0)):
        reports = [timed("all_reduce", 64 << 20, us, 1.0), timed("sendrecv", 8, 9.0, 1.0)]
        (tmp_path / "logs" / "bench" / f"{name}.json").write_text(json.dumps({"reports": reports}))
    log = [
        {"kind": "run", "ranks": 2, "parameters": 1000_000},
        {"kind": "train", "ms": 5.0},
        {"kind": "end", "exposed_ms": 0.5},
    ]
    (tmp_path / "logs" / "training" / "fsdp-own.jsonl").write_text("\n".join(map(json.dumps, log)))
    (tmp_path / "steps").write_text(STEPS)
    return tmp_path


def test_the_report(out, capsys):
    assert gpu_report.main(out / "steps", out, ["commit=abc", "gpus=2"]) == 1  # a step ran past its limit
    assert "1 of 2 steps in order" in capsys.readouterr().out
    written = (out / "gpu_check.json").read_bytes()
    report, page = json.loads(written), (out / "gpu_check.md").read_text()
    assert hashlib.sha256(written).hexdigest() in page
    assert "| 0 | 4000 / 8000 | 100 / 200 |" in page and "| a / b |" in page
    reduced, sent = report["collectives"]
    assert (reduced["own us"], reduced["nccl-of-torch us"]) == (700.0, 650.0)
    assert reduced["predicted us"] == pytest.approx((64 << 20) / 100e3 + 9 * 10.0)
    assert "predicted us" not in sent  # through the host
    assert "predicted: our kernels by the count of bytes and flags" in page
    assert "| all_reduce | 67108864 | 2 | 650 | 700 | 761.1 |" in page
    [run] = report["training"]
    assert run["communication, predicted ms"] == pytest.approx(1.5 * 4e6 / 100e6)
    assert run["exposed ms"] == 0.5
    with tarfile.open(next(out.glob("gpu_check-*.tar.gz"))) as archive:
        names = archive.getnames()
    assert "gpu_check.json" in names and not [name for name in names if "wheels" in name or "tar.gz" in name]


def test_a_report_without_probe_and_benchmarks(out):
    for path in (
        out / "peers.jsonl",
        out / "gpu_probe.json",
        *(out / "logs" / "bench").iterdir(),
        *(out / "logs" / "training").iterdir(),
    ):
        path.unlink()
    (out / "steps").write_text(STEPS.splitlines()[0] + "\n")
    assert gpu_report.main(out / "steps", out, ["commit=abc"]) == 0
    assert "from 0" not in (out / "gpu_check.md").read_text()


@pytest.mark.parametrize(
    ("pairs", "ranks", "speed"),
    [
        ([], 2, None),
        ([pair(0, 0, 4000)], 4, 1000),  # ranks share one GPU's memory
        ([pair(0, 0, 4000), pair(0, 1, 100), pair(1, 0, 25)], 2, 25),
        ([pair(0, 1, 0, "peer access is not supported"), pair(1, 0, 25)], 2, None),
    ],
)
def test_the_speed_of_a_link(pairs, ranks, speed):
    assert gpu_report.link_speed(pairs, ranks) == speed
