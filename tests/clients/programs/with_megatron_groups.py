"""Groups of Megatron-style programs: one backend for CPU tensors, another for a GPU's."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group(f"cpu:{sys.argv[1]},cuda:{sys.argv[2]}")
rank, ranks = dist.get_rank(), dist.get_world_size()
pipeline, data = dist.new_group(list(range(ranks))), dist.new_group([rank], use_local_synchronization=True)
tensor = torch.full((1000,), float(rank + 1))
dist.all_reduce(tensor, group=pipeline)
assert torch.equal(tensor, torch.full((1000,), ranks * (ranks + 1) / 2))
dist.all_reduce(tensor, group=data)
found = [None] * ranks
dist.all_gather_object(found, {"rank": rank})  # as checkpoints do
assert found == [{"rank": r} for r in range(ranks)]
dist.barrier()
kind = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__
print(f"{dist.get_backend()}, {ranks} ranks: CPU tensors by {kind}\n", end="")
dist.destroy_process_group()
