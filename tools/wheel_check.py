"""Tests the wheel in dist/ on each MPI of tools/mpi.py under its launcher and torchrun (results:
docs/status.md), and with each named release of torch (docs/install.md).

    make wheel-check
    make wheel-check ARGS="2.11.0 2.12.1"    # gigabytes: torch as it comes from the index

Uses its own environment; PATH has no compiler, CMake or mpicc. Two ranks run `mpi-gdr selftest --quick`,
under each MPI also the smoke set (tests/mpi) and `mpi-gdr demo`. Exits with 1 if a run fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import mpi
import readme

SECONDS = 300  # per command
TEST = ["-m", "mpi_backend", "selftest", "--quick"]
TRAINING = ["-m", "mpi_backend", "demo", "--steps", "20"]
# Output of a successful command; the table shows the group.
CASES = r"passed, (\d+ cases) on 2 ranks"
TESTS = r"(\d+ passed)"
TRAINED = r"all 2 ranks hold the (same bits)"


def run(command: list[str | Path], folder: Path, variables: dict[str, str], closing: str) -> str:
    """The table's cell; on failure all output goes to standard error."""
    result = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    found = re.search(closing, result.stdout)
    if result.returncode == 0 and found:
        return found[1]
    print(result.stdout, result.stderr, file=sys.stderr)
    return f"FAILED, status {result.returncode}"


def pytest(bin: Path, tests: str) -> list[str | Path]:
    return [bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", readme.ROOT / "tests" / tests]


def on_each_mpi(wheel: Path, folder: Path) -> Iterator[str]:
    """The rows of the first table."""
    bin = readme.environment_with_torch(folder / "env")
    install = [bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, "mpi4py"]
    subprocess.run(install, check=True, cwd=folder)
    plain = variables(bin, folder)
    for library in mpi.LIBRARIES.values():
        mpi.install(library)
        # The launcher determines the library, except for an MPI that has two.
        own = {**plain, **(library.environment() if library.libmpi else dict(library.variables))}
        launcher = [library.folder / library.mpiexec, "-n", "2", bin / "python"]
        agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        asked = {**plain, **library.environment()}
        cells = [
            run([*launcher, *TEST], folder, own, CASES),
            run([bin / "python", *agent, *TEST], folder, asked, CASES) if library.store else "cannot",
            run(pytest(bin, "mpi"), folder, {**plain, "TEST_MPI": library.name}, TESTS),
            run([*launcher, *TRAINING], folder, own, TRAINED),
        ]
        yield f"| {library.version}, {library.abi} | {' | '.join(cells)} |"


def with_torch(version: str, wheel: Path, folder: Path) -> str:
    """The release's row: the self-test with all symbols bound at load time, and tests/newer_torch."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    bin = folder / "env" / "bin"
    packages = [f"torch=={version}", wheel, "mpich", "mpi4py", "numpy", "hypothesis", "pytest"]
    install = [bin / "python", "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, cwd=folder, env={**os.environ, "PIP_CONSTRAINT": os.devnull})
    plain = {**variables(bin, folder), "LD_BIND_NOW": "1"}
    cases = run([bin / "mpi-gdr", "run", "-n", "2", *TEST], folder, plain, CASES)
    features = run(pytest(bin, "newer_torch"), folder, plain, TESTS) if version >= "2.14" else "has none"
    return f"| {version} | {cases} | {features} |"


def variables(bin: Path, home: Path) -> dict[str, str]:
    """A rank's whole environment."""
    return {
        "PATH": str(bin),
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "LANG": os.environ.get("LANG", "C"),
    }


def main() -> int:
    wheel = readme.wheel_in(readme.ROOT / "dist")
    versions, failed = sys.argv[1:], False
    with tempfile.TemporaryDirectory() as name:
        print("| MPI | its launcher | torchrun | tests/mpi | training |\n|---|---|---|---|---|")
        for row in on_each_mpi(wheel, Path(name)):
            print(row, flush=True)
            failed |= "FAILED" in row
    if versions:
        print("\n| torch | self-test | tests/newer_torch |\n|---|---|---|")
    for version in versions:
        with tempfile.TemporaryDirectory() as name:
            row = with_torch(version, wheel, Path(name))
        print(row, flush=True)
        failed |= "FAILED" in row
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
