"""The framework tests' small training, and the same in one process as a reference.

In float64, so that results agree to TOLERANCE for any order of sums, while a wrong divisor or a lost
contribution shows.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

INPUTS, HIDDEN, OUTPUTS = 16, 32, 8
STEPS, LEARNING_RATE = 3, 0.1
TOLERANCE = {"rtol": 1e-10, "atol": 1e-12}


class Model(nn.Module):
    """(B, INPUTS) -> (B, OUTPUTS); `branch`: through a layer that is otherwise unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.branch = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.second = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x: Tensor, branch: bool = True) -> Tensor:
        x = self.norm(torch.tanh(self.first(x)))
        return self.second(x + self.branch(x) if branch else x)


def new_model(seed: int = 17, dtype: torch.dtype = torch.float64) -> Model:
    torch.manual_seed(seed)
    return Model().to(dtype)


def batch(rank: int, step: int, rows: int = 4) -> Tensor:
    """(rows, INPUTS), different for each rank and step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, INPUTS, generator=generator, dtype=torch.float64)


def loss_of(output: Tensor) -> Tensor:
    return (output - 1).square().mean()


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int = 0, steps: int = STEPS) -> None:
    """This rank's training steps on its own batches."""
    for step in range(first, first + steps):
        descend(optimizer, loss_of(model(batch(dist.get_rank(), step))))


def add_gradients(
    model: nn.Module, ranks: int, step: int, scale: float | None = None, rows: int = 4, **arguments
) -> None:
    """Adds the gradients of all ranks' batches of a step, times `scale` (default: 1 / ranks).

    `arguments` of Model.forward; a callable is replaced by its result for (rank, step).
    """
    for rank in range(ranks):
        given = {name: v(rank, step) if callable(v) else v for name, v in arguments.items()}
        loss = loss_of(model(batch(rank, step, rows), **given))
        (loss * (1 / ranks if scale is None else scale)).backward()


def train_alone(ranks: int, steps: int = STEPS, model: nn.Module | None = None, **arguments) -> nn.Module:
    """train() of all ranks in this process. `arguments`: see add_gradients."""
    model = new_model() if model is None else model
    optimizer = sgd(model)
    for step in range(steps):
        add_gradients(model, ranks, step, **arguments)
        optimizer.step()
        optimizer.zero_grad()
    return model


def assert_same_model(model: nn.Module | dict[str, Tensor], expected: nn.Module, **tolerance: float) -> None:
    """Parameters equal those of `expected` by name. Collective for DTensors."""
    actual = model if isinstance(model, dict) else dict(model.named_parameters())
    wanted = dict(expected.named_parameters())
    assert set(actual) == set(wanted)
    for name, parameter in actual.items():
        full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        limits = (tolerance or TOLERANCE) | {"msg": lambda text, name=name: f"{name}: {text}"}
        torch.testing.assert_close(full.detach(), wanted[name].detach(), **limits)


def assert_equal_on_ranks(tensor: Tensor) -> None:
    """Checks equal bits on all ranks. Collective."""
    everyone: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    assert all(other == everyone[0] for other in everyone)
