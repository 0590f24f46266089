"""A small GPT: token and position embeddings, pre-norm transformer blocks, one tied output matrix.

Independent of ranks and devices: programs wrap it. Shapes: B sequences, T tokens each, C channels, H heads, V
vocabulary size.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of the model."""

    vocab_size: int
    block_size: int = 128
    layers: int = 4
    heads: int = 4
    channels: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.channels % self.heads:
            raise ValueError(f"channels={self.channels} is not a multiple of heads={self.heads}")


class SelfAttention(nn.Module):
    """Causal multi-head attention: a token attends to itself and those before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.head_size = config.channels // config.heads
        self.dropout = config.dropout
        # One matrix for queries, keys and values: one large product is faster than three small ones. Rows are
        # grouped by head, so that a rank of a tensor-parallel group can hold some of the heads.
        self.qkv = nn.Linear(config.channels, 3 * config.channels, bias=False)
        self.out = nn.Linear(config.channels, config.channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        # (B, T, 3C) -> three of (B, H, T, C/H)
        qkv = self.qkv(x).view(batch, length, -1, 3, self.head_size)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        y = y.transpose(1, 2).reshape(batch, length, -1)
        return F.dropout(self.out(y), self.dropout, self.training)


class MLP(nn.Module):
    """Two matrices with a GELU between them; the hidden size is 4 C."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.up = nn.Linear(config.channels, 4 * config.channels, bias=False)
        self.down = nn.Linear(4 * config.channels, config.channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); pre-norm lets deep stacks train."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.channels)
        self.attention = SelfAttention(config)
        self.norm2 = nn.LayerNorm(config.channels)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """The whole model."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.channels)
        self.positions = nn.Embedding(config.block_size, config.channels)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.channels)
        self.head = nn.Linear(config.channels, config.vocab_size, bias=False)
        self._initialise()
        # Tied weights: input and output embeddings share one matrix.
        self.head.weight = self.tokens.weight

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        # A block adds two terms to the residual stream: this scale keeps the sum's variance at any depth.
        for block in self.blocks:
            for linear in (block.attention.out, block.mlp.down):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * self.config.layers))

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of tokens x (B, T); with targets (B, T), the mean cross-entropy in nats."""
        length = x.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"x has {length} tokens, block_size={self.config.block_size} is the most")
        y = self.tokens(x) + self.positions(torch.arange(length, device=x.device))
        y = F.dropout(y, self.config.dropout, self.training)
        for block in self.blocks:
            y = block(y)
        logits = self.head(self.norm(y))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def digest(self) -> bytes:
        digest = hashlib.sha256()
        for parameter in self.parameters():
            data = parameter.detach().cpu().contiguous()
            digest.update(ctypes.string_at(data.data_ptr(), data.nbytes))  # numpy() needs NumPy
        return digest.digest()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Two groups: matrices decay, gains and biases do not."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
