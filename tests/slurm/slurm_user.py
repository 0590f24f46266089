"""A user of the cluster: submits jobs, waits for them, queries their state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from slurm_cluster import Cluster
from support import processes

PROGRAMS = Path(__file__).parent / "programs"
REPORT = PROGRAMS / "report.py"
# A command's limit with its time in the queue, multiplied by processes.TIMEOUT_FACTOR.
SECONDS = 50


class User:
    """Has a home folder on all nodes."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        home.mkdir()

    def start(self, *words: object, **variables: str) -> processes.Program:
        """A command on the login node; use as a context."""
        return self.cluster.start([str(word) for word in words], self.home, HOME=str(self.home), **variables)

    def run(self, *words: object, seconds: float = SECONDS, **variables: str) -> processes.Result:
        with self.start(*words, **variables) as program:
            return program.finish(seconds)

    def job(self, name: str) -> dict[str, str]:
        """Slurm's record of the user's job: JobState, ExitCode, Restarts, ..."""
        name = self.name_of_job(name)
        lines = self.cluster.ask("scontrol", "-o", "show", "job").splitlines()
        found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]
        (record,) = [record for record in found if record["JobName"] == name]
        return record

    def name_of_job(self, name: str) -> str:
        return f"{self.home.name}.{name}"

    def srun(self, *words: object, name: str = "job", **variables: str) -> processes.Program:
        return self.start("srun", "-J", self.name_of_job(name), *words, **variables)

    def sbatch(self, script: str, *options: object, name: str = "job", **variables: str) -> processes.Program:
        """Ends with the job. The job's output is in NAME.out."""
        path = self.home / f"{name}.sh"
        path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        output = ["-o", self.home / f"{name}.out", "--open-mode=append"]
        words = ["sbatch", "--wait", "-J", self.name_of_job(name), *output, *options, path]
        return self.start(*words, **variables)

    def output(self, name: str = "job") -> str:
        return (self.home / f"{name}.out").read_text(errors="replace")

    def wait_for_job(self, name: str, *states: str) -> dict[str, str]:
        """Its record once it is in one of these states."""
        what = f"job {name} in state {' or '.join(states)}"
        wait_until(lambda: self.job(name)["JobState"] in states, what)
        return self.job(name)

    def wait_for_ranks(self, ranks: int, folder: str = "ready0") -> None:
        path = self.home / folder
        wait_until(lambda: path.is_dir() and len(list(path.iterdir())) == ranks, f"{ranks} ranks in {folder}")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    assert processes.wait_until(condition, processes.TIMEOUT_FACTOR * SECONDS), f"no {what}"


def reports(output: str) -> list[dict[str, str]]:
    """Reports of programs/report.py, by rank."""
    (line,) = re.findall(r"^REPORT (.*)$", output, re.MULTILINE)
    return json.loads(line)
