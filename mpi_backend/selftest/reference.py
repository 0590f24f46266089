"""Inputs that every rank can compute for all ranks, expected results and error bounds.

Two patterns for floats. "exact": every partial result is representable, so that any order of reduction gives
the same bits. "random": normal values, compared within a bound on rounding errors, derived in
docs/selftest.md. Integers and data movement are always exact.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import NamedTuple

import torch

FACTOR = 0.5  # of PREMUL_SUM: a power of two keeps the exact pattern exact
# Most ranks that give an element a non-neutral value: 64 * 2 = 128 fits bfloat16's 8 bits, FACTOR included.
MAX_CONTRIBUTORS = 64
MAX_FACTORS = 8  # for products: 2^8 fits float16


class Expected(NamedTuple):
    """An expected result."""

    values: torch.Tensor  # in the result's dtype
    reference: torch.Tensor | None = None  # float64, with `bound`: |result - reference| <= bound
    bound: torch.Tensor | None = None


class Mismatch(NamedTuple):
    """The first wrong element."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    got: object
    expected: object
    wrong: int  # number of wrong elements


def values(
    dtype: torch.dtype,
    count: int,
    rank: int,
    size: int,
    *,
    op: str = "sum",
    pattern: str = "exact",
    seed: int = 0,
) -> torch.Tensor:
    """`rank`'s contribution, on the host; the same wherever it is computed."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + rank) * 7919 + count)
    if dtype == torch.bool:
        # Few ones for OR, few zeros for AND: otherwise a single rank decides every element.
        likely = 1 / size if op in ("sum", "max", "bor", "bxor") else 1 - 1 / size
        return torch.rand(count, generator=generator) < likely
    if dtype.is_complex:
        return torch.randn(count, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        low, high = (info.min, info.max) if dtype != torch.int64 else (-(2**62), 2**62)
        return torch.randint(low, high, (count,), generator=generator, dtype=torch.int64).to(dtype)
    if pattern == "random":
        normal = torch.randn(count, generator=generator, dtype=torch.float64)
        if op == "product":  # log-normal: the product of all ranks stays near 1
            normal = torch.exp(normal.clamp(-3, 3) / math.sqrt(size)) * (1 - 2 * (normal > 0.3).double())
        return normal.to(dtype)
    most = MAX_FACTORS if op == "product" else MAX_CONTRIBUTORS
    stride = -(-size // most)
    contributes = (torch.arange(count) + rank) % stride == 0
    if op == "product":
        choice = torch.tensor([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
        picked = choice[torch.randint(0, 6, (count,), generator=generator)]
        return torch.where(contributes, picked, torch.ones(())).to(dtype)
    picked = torch.randint(-2, 3, (count,), generator=generator)
    return torch.where(contributes, picked, torch.zeros((), dtype=torch.int64)).to(dtype)


def reduced(inputs: list[torch.Tensor], op: str, pattern: str) -> Expected:
    """The reduction of one tensor per rank."""
    dtype, size = inputs[0].dtype, len(inputs)
    stacked = torch.stack(inputs)
    if op in ("min", "max"):
        wide = stacked if dtype.is_floating_point else stacked.to(torch.int64)
        return Expected((wide.amin(0) if op == "min" else wide.amax(0)).to(dtype))
    if op in ("band", "bor", "bxor"):
        fold = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[op]
        return Expected(functools.reduce(fold, inputs))
    if dtype == torch.bool:
        return Expected(stacked.any(0) if op == "sum" else stacked.all(0))
    if not dtype.is_floating_point:
        wide = stacked.to(torch.int64)  # wraps as the narrow type: 2^64 is a multiple of its range
        if op == "product":
            return Expected(wide.prod(0).to(dtype))
        total = wide.sum(0).to(dtype)
        return Expected(total if op == "sum" else total.div(size, rounding_mode="trunc"))
    wide = stacked.to(torch.float64)
    if op == "product":
        reference, magnitude = wide.prod(0), wide.prod(0).abs()
    else:
        scale = {"sum": 1.0, "avg": 1.0 / size, "premul_sum": FACTOR}[op]
        reference = wide.sum(0) / size if op == "avg" else (wide * scale).sum(0)
        magnitude = wide.abs().sum(0) * scale
    if pattern == "exact":
        return Expected(reference.to(dtype))
    info = torch.finfo(dtype)
    # size - 1 operations, one for the factor or the division, one for second-order terms; twice, for the
    # float64 reference's own errors. Each may also underflow by one subnormal.
    unit = info.eps / 2 + torch.finfo(torch.float64).eps / 2
    bound = (size + 1) * (unit * magnitude + info.tiny * info.eps)
    return Expected(reference.to(dtype), reference, bound)


def bits(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes, in which minus zero and NaN payloads count."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.numel() else b""


def compare(got: torch.Tensor, expected: Expected) -> tuple[Mismatch | None, float]:
    """(first wrong element or None, largest error / bound)."""
    got = got.detach().cpu().reshape(-1)
    want = expected.values.reshape(-1)
    if got.dtype != want.dtype or got.numel() != want.numel():
        return Mismatch(
            -1, f"{got.numel()} x {got.dtype}", f"{want.numel()} x {want.dtype}", got.numel()
        ), 0.0
    if got.numel() == 0:
        return None, 0.0
    worst = 0.0
    if expected.reference is None or expected.bound is None:
        # As bytes: float8 has no comparison. In wider types zeros of either sign are equal.
        if bits(got) == bits(want):
            return None, 0.0
        if got.dtype.itemsize == 1:
            got, want = got.view(torch.uint8), want.view(torch.uint8)
        wrong = got != want
    else:
        error = (got.to(torch.float64) - expected.reference.reshape(-1)).abs()
        wrong = ~(error <= expected.bound.reshape(-1))  # a NaN is wrong
        worst = float((error / expected.bound.reshape(-1)).nan_to_num(math.inf).max())
    count = int(wrong.sum())
    if count == 0:
        return None, worst
    index = int(wrong.nonzero()[0, 0])
    return Mismatch(index, got[index].item(), want[index].item(), count), worst
