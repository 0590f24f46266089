"""Runs the conformance suite: starts jobs until every case has a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from support import processes

MAIN = Path(__file__).with_name("rank_main.py")


@dataclass
class Verdict:
    result: str  # passed, skipped, failed
    text: str = ""
    seconds: float = 0.0


@dataclass
class Verdicts:
    cases: dict[str, Verdict] = field(default_factory=dict)
    suite: list[str] = field(default_factory=list)  # all cases of the suite
    jobs: int = 0

    def of(self, result: str) -> set[str]:
        return {name for name, verdict in self.cases.items() if verdict.result == result}


def run_cases(
    backend: str, size: int, cases: list[str], reports: Path, timeout: float, **env: str
) -> Verdicts:
    """Runs the cases on `size` ranks: one job, and another for each case that hangs or crashes.

    `timeout`: seconds per job.
    """
    verdicts = Verdicts()
    left = list(cases)
    while left:
        folder = reports / f"job{verdicts.jobs}"
        folder.mkdir(parents=True)
        (folder / "cases").write_text("\n".join(left))
        verdicts.jobs += 1
        # With visible GPUs the suite would take other branches.
        env = {"CUDA_VISIBLE_DEVICES": "", **env}
        result = processes.run(
            [*processes.launched("mpi-gdr run", size), MAIN, backend, folder], timeout, **env
        )
        names = folder / "all_cases"
        verdicts.suite = names.read_text().split() if names.exists() else []
        before = len(verdicts.cases)
        for name in left:
            verdict = read_verdict(folder, size, name)
            if verdict is None:
                break
            verdicts.cases[name] = verdict
        left = [name for name in left if name not in verdicts.cases]
        text = f":\n{result.tail()}\n{logs(folder, size)}"
        if len(verdicts.cases) == before:
            raise AssertionError(f"no case began; output of the launcher{text}")
        if not left and result.status != 0 and not verdicts.of("failed"):
            raise AssertionError(f"status {result.status} after the last case{text}")
    return verdicts


def read_verdict(folder: Path, size: int, name: str) -> Verdict | None:
    """Passed only if all ranks passed; None: no rank started the case."""
    began = False
    ends: list[dict | None] = []
    for rank in range(size):
        path = folder / f"rank{rank}.jsonl"
        events = processes.json_lines(path)
        mine = [e for e in events if e.get("case") == name]
        began = began or bool(mine)
        ends.append(next((e for e in mine if e["event"] == "end"), None))
    if not began:
        return None
    seconds = max((e["s"] for e in ends if e), default=0.0)
    texts = []
    for rank, end in enumerate(ends):
        if end is None:
            log = folder / f"rank{rank}.log"
            lines = log.read_text(errors="replace")[-3000:] if log.exists() else ""
            texts.append(f"rank {rank} did not come back; its log:\n{lines}")
        elif end["result"] != "passed":
            texts.append(f"rank {rank} {end['result']}: {end['text']}")
    results = {end["result"] if end else "failed" for end in ends}
    if results == {"skipped"}:
        return Verdict("skipped", ends[0]["text"], seconds)
    return Verdict(results.pop() if len(results) == 1 else "failed", "\n".join(texts), seconds)


def logs(folder: Path, size: int) -> str:
    paths = [folder / f"rank{rank}.log" for rank in range(size)]
    return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')[-2000:]}" for p in paths if p.exists())
