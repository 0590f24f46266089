"""A rank of a job under attack: rank 0 also writes to the store over another connection, knowing only
what any client can read. The keys are those of csrc/job and csrc/bootstrap."""

from __future__ import annotations

import datetime
import os
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROUNDS = 4


def pack(*fields: str) -> str:
    return "".join(f"{len(field)}:{field}" for field in fields)


def keys_of(store: dist.Store) -> list[str]:
    return [key.decode() if isinstance(key, bytes) else key for key in store.list_keys()]


def well(group: dist.ProcessGroup | None = None) -> None:
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == SIZE


dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=40))
well()
if RANK == 0:
    outside = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    keys = keys_of(outside)
    base = {key[: key.index("/start/")] for key in keys if "/start/" in key}
    assert len(base) == 1, keys
    (job,) = base
    alive = f"{job}/alive"
    met = next((key for key in keys if key.startswith(f"{job}/group/") and key.endswith("/r1")), None)
    assert met, keys
    ended, aborted = (pack(pack(kind, "says an outsider", "0", "", "1")) for kind in "04")
    for item in (ended, outside.get(met), aborted):  # the second is signed by rank 1, for another key
        outside.set(f"{alive}/news/{outside.add(f'{alive}/news', 1)}", item)
    # Meetings of future groups with the same members.
    place = met[: met.rindex("/r1")]
    for times in range(1, 4):
        for name in ("r0", "r1", "r2", "all"):
            outside.set(f"{place[: place.rindex('/')]}/{times}/{name}", pack(*[ended] * SIZE))
dist.barrier()
for _ in range(ROUNDS):  # outlasts the rounds in which ranks read the list
    well(dist.new_group())
    time.sleep(1)
well()
print(f"rank {RANK} is well", flush=True)
dist.destroy_process_group()
