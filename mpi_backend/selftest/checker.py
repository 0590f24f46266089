"""Collects one rank's results and merges all ranks', through the store and not the backend under test."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, cast

import torch

from .reference import Expected, bits, compare

if TYPE_CHECKING:
    from torch.distributed import Store

Failure = dict[str, object]  # operation, rank, got, expected, and the case's parameters
MAX_FAILURES = 5  # per operation and rank: a broken kernel would fill the screen


class RankResult(TypedDict):
    """One operation on one rank."""

    operation: str
    cases: int
    wrong: int
    worst: float  # largest error / bound
    failures: list[Failure]
    digests: list[tuple[str, str]]  # (case, digest of its result)


class _ResultOptional(TypedDict, total=False):
    not_run: bool  # an earlier operation failed; the following are missing then
    wrong: int
    differ: int
    worst: float


class Result(_ResultOptional):
    """One operation on all ranks."""

    operation: str
    cases: int
    ok: bool
    failures: list[Failure]


class Checker:
    """The checks of one operation on this rank."""

    def __init__(self, operation: str, rank: int, device: torch.device) -> None:
        self.operation, self.rank, self.device = operation, rank, device
        self.cases = 0
        self.wrong = 0
        self.worst = 0.0
        self.failures: list[Failure] = []
        self.digests: list[tuple[str, str]] = []

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the device under test; the operation may overwrite it."""
        return tensor.detach().clone().to(self.device)

    def result(
        self,
        got: torch.Tensor,
        expected: Expected | torch.Tensor,
        *,
        equal_on_all: bool = False,
        **what: object,
    ) -> None:
        """Checks a case, named by `what`: dtype, op and so on. `equal_on_all`: all ranks must hold the same
        bits."""
        self.cases += 1
        if isinstance(expected, torch.Tensor):
            expected = Expected(expected)
        mismatch, worst = compare(got, expected)
        self.worst = max(self.worst, worst)
        if mismatch:
            self.fail(
                got=mismatch.got,
                expected=mismatch.expected,
                index=mismatch.index,
                wrong=mismatch.wrong,
                **what,
            )
        if equal_on_all:
            self.digests.append((_words(what), hashlib.sha256(bits(got)).hexdigest()[:16]))

    def condition(self, holds: bool, got: object, expected: object, **what: object) -> None:
        self.cases += 1
        if not holds:
            self.fail(got=got, expected=expected, **what)

    def fail(self, **what: object) -> None:
        self.wrong += 1
        if len(self.failures) < MAX_FAILURES:
            what = {key: str(value).removeprefix("torch.") for key, value in what.items()}
            self.failures.append({"operation": self.operation, "rank": self.rank, **what})

    def report(self) -> RankResult:
        return {
            "operation": self.operation,
            "cases": self.cases,
            "wrong": self.wrong,
            "worst": self.worst,
            "failures": self.failures,
            "digests": self.digests,
        }


def _words(what: dict[str, object]) -> str:
    return " ".join(f"{key}={str(value).removeprefix('torch.')}" for key, value in what.items())


def merge(reports: list[RankResult]) -> Result:
    """Merges reports in rank order: sums, and a comparison of the digests."""
    first = reports[0]
    failures = [failure for report in reports for failure in report["failures"]]
    differ = 0
    for other_rank, report in enumerate(reports[1:], start=1):
        for (what, digest), (_, other) in zip(first["digests"], report["digests"], strict=False):
            if digest != other:
                differ += 1
                text = f"digest {other} on rank {other_rank}"
                entry = {"operation": first["operation"], "rank": str(other_rank), "case": what}
                failures.append({**entry, "got": text, "expected": f"{digest} as on rank 0"})
    if len({len(report["digests"]) for report in reports}) > 1:
        differ += 1
        counts = [len(report["digests"]) for report in reports]
        entry = {"operation": first["operation"], "rank": "all", "got": f"{counts} results"}
        failures.append({**entry, "expected": "as many on each rank"})
    wrong = sum(report["wrong"] for report in reports)
    return {
        "operation": first["operation"],
        "cases": sum(report["cases"] for report in reports),
        "wrong": wrong,
        "differ": differ,
        "worst": max(report["worst"] for report in reports),
        "ok": wrong == 0 and differ == 0,
        "failures": failures,
    }


def exchange(store: Store, rank: int, size: int, report: RankResult, patience: timedelta) -> Result:
    """The merged report of one operation, on all ranks. A rank without one after `patience` is a failure."""
    key = f"mpi-gdr-selftest/{report['operation']}"
    store.set(f"{key}/{rank}", json.dumps(report))
    if rank == 0:
        reports, silent = [], []
        for other in range(size):
            try:
                store.wait([f"{key}/{other}"], patience)
                reports.append(json.loads(store.get(f"{key}/{other}")))
            except RuntimeError:  # DistStoreError
                silent.append(other)
        merged = merge(reports)
        for other in silent:
            merged["ok"] = False
            entry = {"operation": report["operation"], "rank": str(other)}
            merged["failures"].append({**entry, "got": "no report", "expected": f"one within {patience}"})
        store.set(f"{key}/merged", json.dumps(merged))
        return merged
    store.wait([f"{key}/merged"], patience * 2)
    return cast(Result, json.loads(store.get(f"{key}/merged")))
