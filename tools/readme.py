"""Runs every block of README.md as a reader does: in a fresh clone, with an environment of its own.

    python tools/readme.py     # with the Python of .venv, after `make package`

The environment has the torch and the MPI of this one and nothing else. Nothing is compiled twice: the build
in the clone takes the objects of build/ here. A command that takes minutes is run with SHORTER options, or is
a stage of CI by itself.
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
BUILT = ROOT / "build" / f"{sys.implementation.cache_tag}-ninja"
# Command -> its stages in .ci/run. Those of `make train` are its first minutes: the rest is run here.
STAGES = {"make test": "unit and pytest"}
SHORTER = {
    "make train": ' ARGS="--iterations 20 --out {folder}/gpt"',
    "mpi-gdr selftest -n 4": " --quick",
    "mpi-gdr tune -n 4": " --time 4 -e 4K --collectives all_reduce --out {folder}/table",
}
# Packages that the README installs; the reader has all others.
INSTALLED = ("mpi_gdr", "__editable__", "mpi_backend", "pip", "setuptools", "cmake", "ninja")
LIMIT = 300  # seconds a command
# Takes the object of a compiler's command from BUILT, if it is there.
LAUNCHER = """#!/bin/sh
for word; do [ "$previous" = -o ] && object=$word; previous=$word; done
[ -n "$object" ] && [ -f "{built}/$object" ] && exec cp "{built}/$object" "$object"
exec "$@"
"""


def blocks_of(page: str) -> list[tuple[str, str]]:
    """(language, text) of each."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    """The commands of the blocks without a language, without comments."""
    lines = [line for language, text in blocks_of(page) if not language for line in text.splitlines()]
    return [command for line in lines if (command := line.partition(" #")[0].strip())]


def environment_with_torch(folder: Path) -> Path:
    """The bin/ of a new one."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None, "no torch here: make torch"
    for package in Path(spec.origin).parents[1].iterdir():
        if not package.name.startswith(INSTALLED) and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return folder / "bin"


class Reader:
    """A reader's folder and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder, folder / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, self.clone], check=True)
        launcher = folder / "launcher"
        launcher.write_text(LAUNCHER.format(built=BUILT))
        launcher.chmod(0o755)
        bin = environment_with_torch(folder / "env")
        others = [path for path in os.environ["PATH"].split(":") if path != str(Path(sys.executable).parent)]
        self.environment = {
            **os.environ,
            "PATH": ":".join([str(bin), *others]),
            "CMAKE_CXX_COMPILER_LAUNCHER": str(launcher),
            "CMAKE_CUDA_COMPILER_LAUNCHER": str(launcher),
        }

    def run(self, command: str, where: Path) -> None:
        """Ends the program if it fails."""
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
    mpicc = os.environ.get("MPICC") or str(Path(sys.executable).with_name("mpicc"))
    commands = commands_of(page)
    assert not {*STAGES, *SHORTER} - {*commands}, "README.md has not got a command of STAGES or SHORTER"
    with tempfile.TemporaryDirectory() as name:
        reader = Reader(Path(name))
        for command in commands:
            if command in STAGES:
                print(f"$ {command}\n-- is run by {STAGES[command]}")
                continue
            whole = command.replace("/path/to/mpicc", mpicc) + SHORTER.get(command, "").format(folder=name)
            reader.run(whole, ROOT if command.startswith("make ") else reader.clone)
        # Not in the clone: a script's own folder comes first on sys.path, and the extension is not there.
        for language, text in blocks_of(page):
            if language:
                assert language == "python"
                (reader.folder / "train.py").write_text(text)
                reader.run("mpi-gdr run -n 2 train.py", reader.folder)


if __name__ == "__main__":
    main()
