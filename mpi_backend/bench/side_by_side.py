"""Commands that act as a rank under a launcher, and otherwise start jobs of their contenders in turn."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from .. import rank_command
from ..columns import for_screen
from ..command_line import Parser
from ..run import positive
from .compare import state_of
from .jobs import Conditions, conditions, interleave
from .options import contenders

if TYPE_CHECKING:
    import torch


class JobResults(TypedDict):
    """Results of a benchmark's jobs. A report is the value of the benchmark's `run_rank`."""

    benchmark: str
    ranks: int
    rounds: int
    conditions: Conditions
    contenders: dict[str, list[dict[str, Any]]]  # reports by round


Markdown = Callable[[JobResults], Sequence[str]]


class Command:
    """`mpi-gdr bench [-n RANKS] NAME`. `backends`: {contender: its backend}, mpi-gdr first."""

    def __init__(self, name: str, description: str, backends: Mapping[str, str], rounds: int = 3) -> None:
        self.name, self.backends = name, dict(backends)
        self.parser = Parser(
            prog=f"mpi-gdr bench {name}",
            usage=f"mpi-gdr bench -n RANKS {name} [options]",
            description=description,
        )
        add = self.parser.add_argument
        others = [contender for contender in backends if contender != "mpi-gdr"]
        add(
            "--compare",
            type=contenders(*others),
            default=others,
            metavar="LIST",
            help=f"beside mpi-gdr, in turn: some of {','.join(others)} (default: all)",
        )
        add(
            "--rounds",
            type=positive,
            default=rounds,
            metavar="K",
            help=f"jobs of each (default: {rounds})",
        )
        add("--json", metavar="FILE", help="also write JSON to FILE; -: to standard output, instead of text")
        add("--timeout", type=positive, default=300, metavar="S", help="deadline of a call (default: 300)")
        add("--backend", help=argparse.SUPPRESS)  # set in the jobs of a contender

    def main(
        self,
        argv: list[str],
        ranks: int | None,
        run_rank: Callable[[argparse.Namespace], dict[str, Any] | None],
        markdown: Markdown,
    ) -> int:
        """`run_rank` returns the report on rank 0; `markdown` formats collect()'s result as lines."""
        options = self.parser.parse_args(argv)
        device = getattr(options, "device", "cpu")
        if options.backend is None:
            from .jobs import ranks_of_jobs

            jobs = ranks_of_jobs(self.parser, ranks)
            rank_command.check_device(self.parser, device)
            show(self.collect(argv, options, jobs), options.json, markdown)
            return 0
        if (started := rank_command.ranks_to_start(self.parser, ranks)) is not None:
            from . import start_ranks

            return start_ranks([self.name, *argv], started, options.backend)
        rank_command.check_device(self.parser, device)
        report = run_rank(options)
        if report is not None:
            print(json.dumps(report), flush=True)
        return 0

    def collect(self, argv: Sequence[str], options: argparse.Namespace, ranks: int) -> JobResults:
        backends = {name: self.backends[name] for name in ("mpi-gdr", *options.compare)}
        return collect(self.name, argv, backends, ranks, options.rounds)


def collect(
    name: str, argv: Sequence[str], backends: Mapping[str, str], ranks: int, rounds: int
) -> JobResults:
    """Runs one job per contender and round. `backends`: see Command."""
    jobs = {
        contender: [name, *own_options(argv), "--backend", backend] for contender, backend in backends.items()
    }
    reports, copies = interleave(ranks, jobs, rounds)
    return {
        "benchmark": name,
        "ranks": ranks,
        "rounds": rounds,
        "conditions": conditions(reports["mpi-gdr"][0]["info"], copies),
        "contenders": reports,
    }


def report_lines(found: JobResults, markdown: Markdown) -> list[str]:
    """The benchmark's lines and the machine's state."""
    return [*markdown(found), "", f"The machine: {state_of(found['conditions'])}."]


def show(found: JobResults, json_to: str | None, markdown: Markdown) -> None:
    """Prints the lines and writes JSON to the file; "-": prints JSON instead."""
    if json_to == "-":
        print(json.dumps(found))
        return
    print("\n".join(for_screen(report_lines(found, markdown))))
    if json_to:
        Path(json_to).write_text(json.dumps(found) + "\n")


def device_of(name: str) -> torch.device:
    """The current device of this rank; call it after init_process_group."""
    import torch

    if name == "cpu":
        return torch.device(name)
    return torch.device(name, torch.get_device_module(name).current_device())


def synchronizer(device: torch.device) -> Callable[[], None]:
    """Returns a function that waits for the device, because calls on an accelerator return early."""
    import torch

    return (lambda: None) if device.type == "cpu" else torch.get_device_module(device).synchronize


def own_options(argv: Sequence[str]) -> list[str]:
    """argv without the options of the command that starts the jobs; jobs get a --json of their own."""
    kept, words = [], iter(argv)
    for word in words:
        if word in ("--compare", "--rounds", "--json"):
            next(words, None)
        elif not word.startswith(("--compare=", "--rounds=", "--json=")):
            kept.append(word)
    return kept


def initialize(backend: str, timeout_seconds: int) -> tuple[int, int]:
    """Creates torch.distributed's default group; returns (rank, size)."""
    import torch.distributed as dist

    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        placement = (int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
        from .. import launchers

        if (found := launchers.detect(os.environ)) is not None:
            placement = (found.rank, found.size)
        dist.init_process_group("fake", store=FakeStore(), rank=placement[0], world_size=placement[1])
    else:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
    return dist.get_rank(), dist.get_world_size()
