"""Trains a small model under DDP in several ways and saves each rank's parameters: BACKEND FOLDER."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from support.training import batch, descend, new_model, sgd

STEPS = 4


def train(rank, *, branches=False, accumulate=False, hook=None, **arguments):
    # DDP must use rank 0's parameters; these buckets are several.
    model = DDP(new_model(17 + rank, torch.float32), bucket_cap_mb=0.002, **arguments)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = sgd(model)
    for step in range(STEPS):
        batches = [batch(rank, 2 * step + k, 8).float() for k in range(2)]
        branch = not branches or (rank + step) % 2 == 0
        if accumulate:
            with model.no_sync():
                model(batches[0], branch).square().mean().backward()
        descend(optimizer, model(batches[1], branch).square().mean())
    return {name: p.detach().clone() for name, p in model.module.named_parameters()}


def train_sharded(rank):
    model = new_model(17, torch.float32)
    fully_shard(model.first)
    fully_shard(model)
    optimizer = sgd(model)
    for step in range(2):
        descend(optimizer, model(batch(rank, step, 8).float()).square().mean())
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
