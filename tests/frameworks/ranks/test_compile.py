"""torch.compile of functions and models that communicate."""

import shutil

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from support.training import (
    INPUTS,
    STEPS,
    assert_same_model,
    batch,
    descend,
    loss_of,
    new_model,
    sgd,
    train,
    train_alone,
)
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


@pytest.fixture(autouse=True)
def reset_compiler():
    torch._dynamo.reset()


# inductor needs a C++ compiler. Its first use takes 13 s of CPU time, so only one test has it.
COMPILERS = ["aot_eager", *(["inductor"] if shutil.which("g++") or shutil.which("clang++") else [])]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_function_with_collectives(rank, size, compiler):
    """One graph: dist.* calls, which Dynamo replaces, and functional collectives amid computation."""

    @torch.compile(backend=compiler, fullgraph=True)
    def function(x):
        y = x * 2
        dist.all_reduce(y)
        z = funcol.all_gather_tensor(torch.sin(y) + rank, 0, dist.group.WORLD)
        return funcol.reduce_scatter_tensor(z + x.sum(), "avg", 0, dist.group.WORLD)

    inputs = [torch.arange(4.0, dtype=torch.float64) + r for r in range(size)]
    gathered = torch.cat([torch.sin(2 * sum(inputs)) + r for r in range(size)])
    expected = (gathered + sum(x.sum() for x in inputs) / size).chunk(size)[rank]
    for _ in range(2):
        torch.testing.assert_close(function(inputs[rank]), expected)


class Wide(nn.Module):
    """Exceeds the first bucket of DDP, 1 MiB."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(29)
        self.first, self.middle, self.last = nn.Linear(INPUTS, 400), nn.Linear(400, 400), nn.Linear(400, 8)
        self.double()

    def forward(self, x):
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


def test_ddp(size):
    """DDPOptimizer splits the graph by buckets."""
    model = DDP(Wide(), bucket_cap_mb=1)
    counter = CompileCounterWithBackend("aot_eager")
    train(torch.compile(model, backend=counter), sgd(model))
    assert counter.frame_count > 1
    assert_same_model(model.module, train_alone(size, model=Wide()))


def test_fsdp2(rank, size):
    model = new_model()
    fully_shard(model.first)
    fully_shard(model)
    optimizer = sgd(model)
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(STEPS):
        descend(optimizer, loss_of(compiled(batch(rank, step))))
    assert_same_model(model, train_alone(size))
