"""The text: the Python standard library's sources, which every machine with Python has.

Files are read in the order of their names up to a size limit, one token per character; every tenth is held
out for validation. Nothing is random, so all ranks read the same text without communication; `Text.digest`
verifies that, as nodes may have different Python versions.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HELD_OUT = 10  # every tenth file is for validation

# Printable ASCII and the line end have a token each. Token 0 is everything else.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
VOCAB_SIZE = len(CHARACTERS) + 1


@dataclass(frozen=True)
class Text:
    """Training tokens and held-out tokens."""

    train: Tensor  # uint8, one token per character
    val: Tensor
    digest: bytes  # SHA-256 of both


def encode(text: bytes) -> Tensor:
    """Tokens (uint8) of a text; \r\n counts as one character."""
    table = bytearray(256)
    for token, character in enumerate(CHARACTERS, start=1):
        table[ord(character)] = token
    tokens = text.replace(b"\r\n", b"\n").translate(bytes(table))
    return torch.frombuffer(bytearray(tokens), dtype=torch.uint8)


def load(limit_bytes: int) -> Text:
    """Loads as many files as fit into the limit. Raises RuntimeError if none is left for validation."""
    folder = Path(sysconfig.get_path("stdlib"))
    train, val, size = bytearray(), bytearray(), 0
    for number, path in enumerate(sorted(folder.glob("*.py"))):
        source = path.read_bytes()
        size += len(source)
        if size > limit_bytes:
            break
        (val if number % HELD_OUT == HELD_OUT - 1 else train).extend(source)
    if not val:
        raise RuntimeError(
            f"the standard library in {folder} gave {len(train)} bytes of training text and none for "
            f"validation; expected at least {HELD_OUT} source files within limit_bytes={limit_bytes}"
        )
    digest = hashlib.sha256(train + b"\0" + val).digest()
    return Text(encode(bytes(train)), encode(bytes(val)), digest)


def windows(tokens: Tensor, starts: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T): the targets are the inputs shifted by one character."""
    chunk = tokens[starts[:, None] + torch.arange(block_size + 1)].long()
    return chunk[:, :-1], chunk[:, 1:]


def train_batch(
    tokens: Tensor, *, seed: int, iteration: int, batch_size: int, block_size: int, rank: int, ranks: int
) -> tuple[Tensor, Tensor]:
    """This rank's part of the iteration's batch.

    Every rank draws the whole batch from (seed, iteration) and takes its rows, so the loss curve depends
    neither on the number of ranks nor on where a run was resumed.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + iteration)
    starts = torch.randint(len(tokens) - block_size, (batch_size,), generator=generator)
    return windows(tokens, starts.chunk(ranks)[rank], block_size)


def val_batches(
    tokens: Tensor, *, count: int, batch_size: int, block_size: int, rank: int, ranks: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's part of `count` fixed batches, spread evenly over the held-out text."""
    starts = torch.linspace(0, len(tokens) - block_size - 1, count * batch_size).long()
    for batch in starts.chunk(count):
        yield windows(tokens, batch.chunk(ranks)[rank], block_size)
