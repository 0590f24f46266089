"""The wheel in dist/ on each MPI of tools/mpi.py, as docs/status.md has it.

    make wheel-check

In an environment of its own, with this one's torch; PATH has no compiler, no CMake and no mpicc. Two ranks
run `mpi-gdr selftest --quick`. Ends with status 1 where a run fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import mpi
import readme

SECONDS = 120  # a self-test


def run(command: list[str | Path], folder: Path, variables: dict[str, str]) -> str:
    """What the table says: the number of cases, or how it failed (and all output, on standard error)."""
    result = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    passed = re.search(r"passed, (\d+) cases on 2 ranks", result.stdout)
    if result.returncode == 0 and passed:
        return f"{passed[1]} cases"
    print(result.stdout, result.stderr, file=sys.stderr)
    return f"FAILED, status {result.returncode}"


def main() -> int:
    """Prints the table."""
    wheel = readme.wheel_in(readme.ROOT / "dist")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        bin = readme.environment_with_torch(Path(name, "env"))
        install = [bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel]
        subprocess.run(install, check=True, cwd=name)
        test = ["-m", "mpi_backend", "selftest", "--quick"]
        plain = {"PATH": str(bin), "HOME": name, "OMP_NUM_THREADS": "1", "LANG": os.environ.get("LANG", "C")}
        print("| MPI | its launcher | torchrun |\n|---|---|---|")
        for library in mpi.LIBRARIES.values():
            mpi.install(library)
            # The launcher says which, but where an MPI has two libraries.
            own = library.environment() if library.libmpi else dict(library.variables)
            launcher = [library.folder / library.mpiexec, "-n", "2", bin / "python", *test]
            agent = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            torchrun = [bin / "python", *agent, *test]
            cells = [run(launcher, Path(name), {**plain, **own})]
            cells.append(
                run(torchrun, Path(name), {**plain, **library.environment()}) if library.store else "cannot"
            )
            failed |= any("FAILED" in cell for cell in cells)
            print(f"| {library.version}, {library.abi} | {' | '.join(cells)} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
