"""Trains a small model under DDP in several ways and saves each rank's parameters: BACKEND FOLDER."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 4


class Model(nn.Module):
    """With `branch`, a layer that only some ranks use in some steps."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(20, 64), nn.LayerNorm(64), nn.Linear(64, 3)
        self.branch = nn.Linear(64, 64)

    def forward(self, x, branch=True):
        x = self.norm(torch.relu(self.first(x)))
        return self.second(x + self.branch(x) if branch else x)


def train(rank, *, branches=False, accumulate=False, hook=None, **arguments):
    torch.manual_seed(17 + rank)  # DDP must use rank 0's parameters
    model = DDP(Model(), bucket_cap_mb=0.01, **arguments)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        batches = [torch.randn(8, 20, generator=generator) for _ in range(2)]
        branch = not branches or (rank + step) % 2 == 0
        if accumulate:
            with model.no_sync():
                model(batches[0], branch).square().mean().backward()
        model(batches[1], branch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach().clone() for name, p in model.module.named_parameters()}


def train_sharded(rank):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(17)
    model = Model()
    fully_shard(model.first)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(2):
        model(torch.randn(8, 20, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()}


def main(backend, folder):
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank = dist.get_rank()
    results = {
        "plain": train(rank),
        "find_unused": train(rank, branches=True, find_unused_parameters=True),
        "static_graph": train(rank, static_graph=True),
        "bucket_view": train(rank, gradient_as_bucket_view=True),
        "no_sync": train(rank, accumulate=True),
        "fp16_hook": train(rank, hook=default_hooks.fp16_compress_hook),
        "sharded": train_sharded(rank),
    }
    torch.save(results, Path(folder) / f"{backend}-{rank}.pt")
    # Gloo's thread may still hold a tensor of the last collective, and aborts if it releases it while Python
    # shuts down; a barrier carries none.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
