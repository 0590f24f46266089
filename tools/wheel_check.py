"""The wheel in dist/ on each MPI of tools/mpi.py, under its launcher and torchrun, as docs/status.md has it,
and with each release of torch that is named, as docs/install.md has it.

    make wheel-check
    make wheel-check ARGS="2.11.0 2.12.1"    # gigabytes: torch as it comes from the index

In an environment of its own; PATH has no compiler, no CMake and no mpicc. Two ranks run `mpi-gdr selftest
--quick`. Ends with status 1 where a run fails.
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

SECONDS = 120  # a self-test
TESTS = readme.ROOT / "tests" / "newer_torch"
TEST = ["-m", "mpi_backend", "selftest", "--quick"]


def run(
    command: list[str | Path],
    folder: Path,
    variables: dict[str, str],
    closing: str = r"passed, (\d+) cases on 2 ranks",
    unit: str = "cases",
) -> str:
    """What the table says: the number of cases, or how it failed (and all output, on standard error)."""
    result = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    passed = re.search(closing, result.stdout)
    if result.returncode == 0 and passed:
        return f"{passed[1]} {unit}"
    print(result.stdout, result.stderr, file=sys.stderr)
    return f"FAILED, status {result.returncode}"


def on_each_mpi(wheel: Path, folder: Path) -> Iterator[str]:
    """The rows of its table."""
    bin = readme.environment_with_torch(folder / "env")
    install = [bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel]
    subprocess.run(install, check=True, cwd=folder)
    plain = variables(bin, folder)
    for library in mpi.LIBRARIES.values():
        mpi.install(library)
        # The launcher says which, but where an MPI has two libraries.
        own = library.environment() if library.libmpi else dict(library.variables)
        launcher = [library.folder / library.mpiexec, "-n", "2", bin / "python", *TEST]
        cells = [run(launcher, folder, {**plain, **own})]
        agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        torchrun = [bin / "python", *agent, *TEST]
        cells.append(run(torchrun, folder, {**plain, **library.environment()}) if library.store else "cannot")
        yield f"| {library.version}, {library.abi} | {' | '.join(cells)} |"


def with_torch(version: str, wheel: Path, folder: Path) -> str:
    """Its row: the self-test, all symbols looked up when the extension is loaded, and tests/newer_torch."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    bin = folder / "env" / "bin"
    packages = [f"torch=={version}", wheel, "mpich", "mpi4py", "hypothesis", "pytest"]
    install = [bin / "python", "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, cwd=folder, env={**os.environ, "PIP_CONSTRAINT": os.devnull})
    plain = {**variables(bin, folder), "LD_BIND_NOW": "1"}
    cases = run([bin / "mpi-gdr", "run", "-n", "2", *TEST], folder, plain)
    newer = [bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    features = "has none" if version < "2.14" else run(newer, folder, plain, r"(\d+) passed in", "tests")
    return f"| {version} | {cases} | {features} |"


def variables(bin: Path, home: Path) -> dict[str, str]:
    """All that a rank gets."""
    return {
        "PATH": str(bin),
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "LANG": os.environ.get("LANG", "C"),
    }


def main() -> int:
    """Prints the tables."""
    wheel = readme.wheel_in(readme.ROOT / "dist")
    versions, failed = sys.argv[1:], False
    with tempfile.TemporaryDirectory() as name:
        print("| MPI | its launcher | torchrun |\n|---|---|---|")
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
