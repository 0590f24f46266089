"""Token-by-token generation with a GPT: each attention caches the keys and values of earlier tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mpi_backend.demo.model import GPT, SelfAttention


class CachedAttention(nn.Module):
    """SelfAttention for new tokens: first a prompt, then one at a time."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.qkv, self.out, self.head_size = attention.qkv, attention.out, attention.head_size
        self.past: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], -1, 3, self.head_size).permute(3, 0, 2, 1, 4)
        if self.past:
            k, v = (torch.cat(pair, dim=2) for pair in zip(self.past, (k, v), strict=True))
        self.past = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        return self.out(y.transpose(1, 2).flatten(2))


def cached(model: GPT) -> GPT:
    """Changes the model in place for next_logits()."""
    for block in model.blocks:
        block.attention = CachedAttention(block.attention)
    return model


def forget(model: GPT) -> None:
    for block in model.blocks:
        block.attention.past = None


def next_logits(model: GPT, tokens: Tensor, begin: int) -> Tensor:
    """Logits of the token after `tokens` (B, T). `begin`: position of their first token; the cache holds the
    tokens before it."""
    positions = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
    y = model.tokens(tokens) + model.positions(positions)
    for block in model.blocks:
        y = block(y)
    return model.head(model.norm(y[:, -1]))
