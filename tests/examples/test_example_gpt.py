"""The example trains over Gloo and mpi-gdr with the same curve, and resumes exactly."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import processes

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt"
BACKENDS = ("gloo", "mpi-gdr")
ITERATIONS = 20


def launch(*arguments: str, ranks: int = 2, script: Path = EXAMPLE / "train.py") -> processes.Result:
    options = ["--preset=tiny", "--device=cpu", f"--iterations={ITERATIONS}"]
    return processes.run([*processes.launched("torchrun", ranks), script, *options, *arguments])


def train(*arguments: str, ranks: int = 2) -> str:
    return launch(*arguments, ranks=ranks).expect(0)


def read(out: Path) -> list[dict]:
    return processes.json_lines(out / "log.jsonl")


def losses(out: Path) -> list[tuple[str, int, float]]:
    return [(r["kind"], r["iteration"], r["loss"]) for r in read(out) if "loss" in r]


def compare(a: Path, b: Path, *arguments: str) -> processes.Result:
    logs = [a / "log.jsonl", b / "log.jsonl"]
    return processes.run([sys.executable, EXAMPLE / "compare.py", *logs, *arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns a function: backend -> (folder, output) of an uninterrupted run, cached."""
    runs = {}

    def get(backend: str) -> tuple[Path, str]:
        if backend not in runs:
            out = tmp_path_factory.mktemp(backend)
            runs[backend] = out, train(f"--backend={backend}", f"--out={out}", "--keep-checkpoints")
        return runs[backend]

    return get


@pytest.mark.parametrize("backend", BACKENDS)
def test_trains(finished, backend):
    out, output = finished(backend)
    log = read(out)
    assert (log[0]["backend"], log[0]["ranks"]) == (backend, 2)
    validation = [r["loss"] for r in log if r["kind"] == "val"]
    assert validation[0] > 4.3 and validation[-1] < 3.5  # ln(97) = 4.57 untrained
    assert [r["iteration"] for r in log if r["kind"] == "train"] == list(range(ITERATIONS))
    end = log[-1]
    assert end["kind"] == "end" and end["equal"]
    assert len(end["parameters"]) == 2 and len(set(end["parameters"])) == 1
    assert isinstance(end["exposed_ms"], float)
    assert f"bitwise equal on all 2 ranks, SHA-256 {end['parameters'][0]}" in output
    assert "exposed communication" in output
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("backend", BACKENDS)
def test_resumes_exactly(finished, backend, tmp_path):
    whole, _ = finished(backend)
    out = tmp_path / "resumed"
    # The log still has later records, as after a crash.
    shutil.copytree(whole, out)
    train(f"--backend={backend}", f"--out={out}", "--resume=checkpoint-10.pt")
    assert losses(out) == losses(whole)
    assert read(out)[-1]["parameters"] == read(whole)[-1]["parameters"]


def test_backends_agree(finished, tmp_path):
    (gloo, _), (mpi_gdr, _) = finished("gloo"), finished("mpi-gdr")
    picture = tmp_path / "both.png"
    compare(gloo, mpi_gdr, "--tolerance=1e-3", f"--plot={picture}").expect(0)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_compare_finds_a_difference(finished, tmp_path):
    whole, _ = finished("gloo")
    lines = (whole / "log.jsonl").read_text().splitlines()
    record = json.loads(lines[5])
    changed = json.dumps(record | {"loss": record["loss"] + 0.01})
    for name, text in (("changed", [*lines[:5], changed, *lines[6:]]), ("short", lines[:5])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text("\n".join(text) + "\n")
    sentence = f"largest difference: 0.01 ({record['kind']} loss of iteration {record['iteration']})"
    assert sentence in compare(whole, tmp_path / "changed").expect(1)
    assert compare(whole, tmp_path / "changed", "--tolerance=0.1").status == 0
    assert compare(whole, tmp_path / "short").status == 1
    assert compare(whole, tmp_path / "short", "--partial").status == 0


def test_other_settings_do_not_resume(finished, tmp_path):
    whole, _ = finished("gloo")
    before = (whole / "log.jsonl").read_bytes()
    output = launch("--backend=gloo", f"--out={whole}", "--resume", "--seed=1", ranks=1).expect_failure()
    assert "seed=1337, now 1" in output and "ranks=2, now 1" in output
    assert (whole / "log.jsonl").read_bytes() == before


def test_unequal_parameters_are_an_error(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(EXAMPLE)!r})
import train

hashes = train.Trainer.parameter_hashes

def off_by_a_little(self):
    if self.ranks.rank == 1:
        next(self.raw_model.parameters()).data[0, 0] *= 1 + 1e-6
    return hashes(self)

train.Trainer.parameter_hashes = off_by_a_little
sys.exit(train.main())
""")
    output = launch("--backend=gloo", f"--out={tmp_path}", "--iterations=1", script=script).expect_failure()
    assert "parameters: DIFFERENT" in output
    assert not read(tmp_path)[-1]["equal"]


def test_one_process_without_launcher(tmp_path):
    command = [sys.executable, str(EXAMPLE / "train.py"), "--preset=tiny", "--device=cpu", "--iterations=5"]
    command += [f"--out={tmp_path}"]
    assert "bitwise equal on all 1 ranks" in processes.run(command).expect(0)
    assert read(tmp_path)[-1]["exposed_ms"] is None
