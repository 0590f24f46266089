"""Covering arrays of strength 2: few rows that contain every pair of values that can occur together.

Most faults of a library with many parameters depend on one value or on two together (Kuhn, Wallace, Gallo,
"Software fault interactions and implications for software testing", IEEE TSE 30(6), 2004).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

CANDIDATES = 50  # examined per chosen row: more make the array a little smaller


def rows(parameters: Mapping[str, Sequence[Any]], allowed: Callable[..., bool]) -> list[dict[str, Any]]:
    """The full product without the rows for which `allowed(**row)` is false."""
    names = list(parameters)
    every = (dict(zip(names, values, strict=True)) for values in product(*parameters.values()))
    return [row for row in every if allowed(**row)]


def pairs(row: Mapping[str, Any]) -> Iterable[tuple]:
    """The pairs of (name, value) in a row. Values must be hashable."""
    return combinations(row.items(), 2)


def covering(parameters: Mapping[str, Sequence[Any]], allowed: Callable[..., bool]) -> list[dict[str, Any]]:
    """Allowed rows that contain every pair of any allowed row; greedily few, deterministic."""
    generator = random.Random(0)
    full = rows(parameters, allowed)
    rows_with: dict[tuple, list[int]] = {}
    for index, row in enumerate(full):
        for pair in pairs(row):
            rows_with.setdefault(pair, []).append(index)
    missing = dict.fromkeys(rows_with)  # an ordered set
    taken = []
    while missing:
        able = rows_with[next(iter(missing))]
        candidates = able if len(able) <= CANDIDATES else generator.sample(able, CANDIDATES)
        best = max(candidates, key=lambda index: sum(pair in missing for pair in pairs(full[index])))
        taken.append(full[best])
        for pair in pairs(full[best]):
            missing.pop(pair, None)
    return taken
