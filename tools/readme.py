"""Runs every block of README.md as a reader does.

    make wheel                 # or another dist/mpi_gdr-*.whl
    python tools/readme.py     # with the Python of .venv, after `make package`

Runs the wheel's commands in a folder with only the wheel, in an environment with pip and this one's torch.
Slow commands get SHORTER options, or are stages of CI of their own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# {command: its stages in .ci/run}. Only the first minutes of `make train` are a stage.
STAGES = {"make test": "unit and pytest"}
SHORTER = {"make train": ' ARGS="--iterations 20 --out {folder}/gpt"', "mpi-gdr demo": " --steps 20"}
# Packages that the README installs or that the reader lacks.
MISSING = ("mpi_gdr", "__editable__", "mpi_backend", "pip", "mpich", "mpi4py", "setuptools", "cmake", "ninja")
LIMIT = 300  # seconds per command


def blocks_of(page: str) -> list[tuple[str, str]]:
    """(language, text) of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    """Commands of the blocks without a language, without comments."""
    lines = [line for language, text in blocks_of(page) if not language for line in text.splitlines()]
    return [command for line in lines if (command := line.partition(" #")[0].strip())]


def wheel_in(folder: Path) -> Path:
    """The only wheel there. Exits if there is none or more than one."""
    wheels = sorted(folder.glob("mpi_gdr-*.whl"))
    if len(wheels) != 1:
        found = ", ".join(wheel.name for wheel in wheels) or "none"
        raise SystemExit(
            f"README.md needs one wheel mpi_gdr-*.whl in {folder}, which has {found}: `make wheel`"
        )
    return wheels[0]


def environment_with_torch(folder: Path) -> Path:
    """The bin/ of a new virtual environment with this one's torch."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None, "no torch here: make torch"
    for package in Path(spec.origin).parents[1].iterdir():
        if not package.name.startswith(MISSING) and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return folder / "bin"


class Reader:
    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "reader"
        self.folder.mkdir()
        (self.folder / wheel.name).symlink_to(wheel)
        bin = environment_with_torch(folder / "env")
        others = [path for path in os.environ["PATH"].split(":") if path != str(Path(sys.executable).parent)]
        self.environment = {**os.environ, "PATH": ":".join([str(bin), *others])}

    def run(self, command: str, where: Path) -> None:
        """Exits if the command fails."""
        print(f"$ {command}", flush=True)
        begin = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=where, env=self.environment, stdin=subprocess.DEVNULL, timeout=LIMIT
        )
        print(f"-- status {done.returncode}, {time.monotonic() - begin:.0f} s", flush=True)
        if done.returncode:
            raise SystemExit(f"README.md: `{command}` ended with status {done.returncode}")


def main() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = commands_of(page)
    assert not {*STAGES, *SHORTER} - {*commands}, "README.md has not got a command of STAGES or SHORTER"
    scripts = [text for language, text in blocks_of(page) if language == "python"]
    assert len(scripts) == 1, "README.md has one script, train.py"
    wheel = wheel_in(ROOT / "dist")
    with tempfile.TemporaryDirectory() as name:
        reader = Reader(Path(name), wheel)
        (reader.folder / "train.py").write_text(scripts[0])
        for command in commands:
            if command in STAGES:
                print(f"$ {command}\n-- is run by {STAGES[command]}")
                continue
            whole = command + SHORTER.get(command, "").format(folder=name)
            reader.run(whole, ROOT if command.startswith("make ") else reader.folder)


if __name__ == "__main__":
    main()
