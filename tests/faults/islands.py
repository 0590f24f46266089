"""One rank of a job on two hosts that loses its store, with a group of all ranks and one per host.

The argument "serve" serves the store in a process of its own, as torchrun's agent does. Otherwise the
arguments are the folder for events and the host of each rank, such as "0101".
"""

from __future__ import annotations

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from event_log import Log

DEADLINE = 60  # seconds; the lost store is noticed earlier
ADDRESS, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def serve() -> None:
    store = dist.TCPStore(ADDRESS, PORT, is_master=True, wait_for_workers=False)
    time.sleep(600)
    del store


def work(folder: str, hosts: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log = Log(folder, rank)

    def right(group: dist.ProcessGroup | None, members: list[int]) -> bool:
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor, group=group)
        return bool((tensor == sum(members)).all())

    log("start", pid=os.getpid())
    timeout = datetime.timedelta(seconds=DEADLINE)
    store = dist.TCPStore(ADDRESS, PORT, is_master=False, timeout=timeout)
    dist.init_process_group("mpi-gdr", store=store, rank=rank, world_size=size, timeout=timeout)
    everyone = list(range(size))
    islands = [[r for r in everyone if hosts[r] == host] for host in sorted(set(hosts))]
    groups = [dist.new_group(ranks) for ranks in islands]
    group, members = next((g, ranks) for g, ranks in zip(groups, islands, strict=True) if rank in ranks)
    assert right(None, everyone) and right(group, members)
    log("ready")
    try:
        while right(None, everyone):
            time.sleep(0.01)
        log("wrong")
    except Exception as error:
        log("error", kind=type(error).__name__, text=str(error))
    for number in range(200):
        if not right(group, members):
            log("wrong", number=number)
    log("island", ranks=members)
    log("end")
    time.sleep(1)  # the island's other rank may still be in its last round
    dist.destroy_process_group()  # the failure has been noticed


if sys.argv[1] == "serve":
    serve()
else:
    work(*sys.argv[1:])
