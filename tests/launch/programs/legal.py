"""Legal calls that differ between three ranks: no error, and right results."""

import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()

# The group's first call consists of two collectives; ranks that wait for rank 1 publish it for comparison.
late = dist.new_group()
if rank == 1:
    time.sleep(3)
sparse = torch.eye(3).to_sparse()
dist.all_reduce(sparse, group=late)
assert torch.equal(sparse.to_dense(), size * torch.eye(3))

# Ranks without data do not determine the dtype; a barrier is added after the 16th call.
uneven = dist.new_group()
for i in range(40):
    own = torch.empty(0, dtype=torch.int16 if rank == 1 else torch.float32)
    if rank == i % size:  # sends to itself
        own = torch.ones(4)
    counts = [len(own) if other == rank else 0 for other in range(size)]
    result = torch.empty_like(own)
    dist.all_to_all_single(result, own, counts, counts, group=uneven)
    assert torch.equal(result, own)
empty = [torch.empty(0) for _ in range(size)]
dist.all_gather(empty, torch.empty(0, dtype=torch.float32), group=uneven)

# A block of several dtypes, with different tensors on the ranks.
block = dist.new_group()
for _ in range(20):
    moved, part = torch.full((3,), rank, dtype=torch.int64), torch.empty(2)
    parts = [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None
    with dist._coalescing_manager(group=block, async_ops=True) as works:
        dist.scatter(part, parts, 0, group=block)
        dist.broadcast(moved, 0, group=block)
    works.wait()
    assert (part == rank).all() and (moved == 0).all()

# Groups of some ranks, destroyed in different orders, one after an abort that affects no other group.
pair = dist.new_group([0, 2])
if rank != 1:
    dist.broadcast(torch.ones(3), 0, group=pair)
idle = dist.new_group()
if rank == 0:
    idle._get_backend(torch.device("cpu")).abort()
for group in (late, uneven, block) if rank else (block, late, uneven):
    dist.destroy_process_group(group)
dist.destroy_process_group()
print("legal")
