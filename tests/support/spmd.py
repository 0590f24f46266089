"""Starts the ranks of SPMD tests and combines their reports into one verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import processes

TESTS = Path(__file__).parents[1]
MAIN = TESTS / "support" / "spmd_main.py"
GROUP_SECONDS = int(os.environ.get("SPMD_GROUP_SECONDS", "45"))  # timeout of the ranks' process group


def run_spmd(
    reports: Path, launcher: str, size: int, *arguments: str, timeout: float = 240, mpiexec: str = "",
    **env: str,
) -> int:  # fmt: skip
    """Runs pytest with `arguments` (files, selection) on `size` ranks; returns the number of tests that
    passed on all.

    `mpiexec`: launcher for `mpi-gdr run`, by default that of the loaded MPI.
    """
    reports.mkdir(exist_ok=True)
    chosen = ["--mpiexec", mpiexec] if mpiexec else []
    if launcher == "spawn":
        command = [sys.executable, str(MAIN), "--spawn", str(size)]
    else:
        command = [*processes.launched(launcher, size), *chosen, str(MAIN)]
    result = processes.run([*command, *arguments], timeout, cwd=str(TESTS), SPMD_REPORTS=str(reports), **env)
    problems, passed = read_reports(reports, size)
    if result.status != 0 or problems:
        ended = "ran past the deadline" if result.status is None else f"status {result.status}"
        problems.insert(0, f"{launcher} with {size} ranks: {ended}")
        problems.append(f"output of the launcher:\n{result.tail(2000)}")
        if len(problems) == 2 or result.status is None:
            problems += [f"log of rank {r}:\n{_tail(reports / f'rank{r}.log')}" for r in range(size)]
        raise AssertionError("\n\n".join(problems))
    return passed


def read_reports(reports: Path, size: int) -> tuple[list[str], int]:
    """(problems as sentences, number of tests that passed on all ranks)."""
    problems: list[str] = []
    ended: list[list[str]] = []
    for rank in range(size):
        path = reports / f"rank{rank}.jsonl"
        events = processes.json_lines(path)
        started = [e["test"] for e in events if e["event"] == "start"]
        ended.append([e["test"] for e in events if e["event"] == "end"])
        for e in events:
            if e["event"] == "failure":
                problems.append(f"rank {rank}: {e['test']} failed in {e['when']}:\n{e['text']}")
            elif e["event"] == "alone":
                problems.append(f"rank {rank} waited in vain for the others after {e['test']}: {e['text']}")
        if len(started) > len(ended[rank]):
            stacks = _tail(reports / f"rank{rank}.stacks", 8000)
            text = f"its stacks:\n{stacks}" if stacks else f"its log:\n{_tail(reports / f'rank{rank}.log')}"
            problems.append(f"rank {rank} did not come back from {started[-1]}; {text}")
        elif not events or events[-1]["event"] != "finish":
            log = _tail(reports / f"rank{rank}.log")
            problems.append(f"rank {rank} did not come to the end of its tests; its log:\n{log}")
    if any(tests != ended[0] for tests in ended):
        counts = ", ".join(f"rank {r}: {len(tests)}" for r, tests in enumerate(ended))
        problems.append(f"the ranks did not run the same tests ({counts})")
    if not ended[0]:
        problems.append("no test was run")
    return problems, len(ended[0])


def _tail(path: Path, characters: int = 4000) -> str:
    return path.read_text(errors="replace")[-characters:] if path.exists() else ""
