"""One rank of a job on device SPMD_DEVICE whose last rank fails the others. Run apart.

Argument: the last rank's action and how the others wait. The backend ends them, or they
exit after its error, or they succeed.
"""

import datetime
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist
from support import gpu
from support.gpu import DEVICE

CASE = sys.argv[1]
SECONDS = 4


def init(**more):
    seconds = datetime.timedelta(seconds=60)
    dist.init_process_group(gpu.BACKEND, timeout=seconds, **more)


def ones(count=20_000):
    return torch.ones(count, device=DEVICE)


def total(**more):
    tensor = ones()
    return tensor, dist.all_reduce(tensor, async_op=True, **more)


def stay_away():
    """Exits once the others have ended."""
    while any(os.path.exists(f"/proc/{pid}") for pid in others):
        time.sleep(0.05)
    os._exit(0)


def stay():
    """Waits for the backend to end the process."""
    time.sleep(SECONDS + 15)
    print("still here", flush=True)
    os._exit(9)


init()
rank, size = dist.get_rank(), dist.get_world_size()
is_last = rank == size - 1
tensor, work = total()
work.wait()
assert tensor.sum().item() == 20_000 * size
pids = [None] * size
dist.all_gather_object(pids, os.getpid())
others = pids[:-1]
if CASE.startswith("absent"):  # only now, because starts are slow on a busy machine
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=SECONDS))
begin = time.monotonic()

if CASE == "absent" or CASE == "absent, collectives behind it":  # no host thread waits
    if is_last:
        stay_away()
    works = [total() for _ in range(1 if CASE == "absent" else 50)]
    for _, work in works:
        work.wait()
    stay()

if CASE == "absent, message":
    if is_last:
        stay_away()
    received = ones()
    dist.irecv(received, size - 1).wait()
    stay()

if CASE == "absent, then another call":  # with MPI_GDR_ASYNC_ERROR=raise
    if is_last:
        stay_away()
    tensor, work = total()
    work.wait()
    gpu.synchronize()  # the device must not be blocked
    try:
        while True:
            total()[1].wait()
            time.sleep(0.05)
    except dist.DistBackendError as error:
        print("error:", error, flush=True)
    gpu.synchronize()
    gpu.allocate_and_free()
    os._exit(7)

if CASE in ("absent, the host waits", "absent, a timeout"):  # the former by MPI_GDR_BLOCKING_WAIT
    if is_last:
        stay_away()
    tensor, work = total()
    try:
        work.wait(timeout=datetime.timedelta(seconds=2)) if "timeout" in CASE else work.wait()
    except dist.DistBackendError as error:
        print("error:", error, flush=True)
        gpu.synchronize()
        os._exit(7)
    stay()

if CASE == "absent, then destroyed":
    if is_last:
        stay_away()
    tensor, work = total()
    work.wait()
    dist.destroy_process_group()
    print("destroyed", flush=True)
    gpu.synchronize()
    stay()  # another thread may end the process only now

if CASE == "killed":
    while True:
        tensor, work = total()
        if is_last and time.monotonic() - begin > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        work.wait()
        tensor.mul_(2)

if CASE == "killed, behind a slow kernel":
    while True:
        gpu.sleep(300)
        for _ in range(5):
            tensor, work = total()
            work.wait()
            tensor.mul_(2)
        if is_last and time.monotonic() - begin > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)

if CASE.startswith("killed, replaying"):
    graph, tensor = gpu.new_graph(), ones()
    with gpu.captured(graph):
        dist.all_reduce(tensor)
    gpu.synchronize()
    dist.barrier()
    for replay in range(1000):
        graph.replay()
        if is_last and replay == 20:
            gpu.synchronize()
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        gpu.synchronize()
        dist.all_reduce(ones())
        print("no error", flush=True)
    except dist.DistBackendError as error:
        print("error:", error, flush=True)
    os._exit(7)

if CASE == "aborted":
    group = dist.new_group()
    dist.all_reduce(ones(), group=group)  # a group's first one waits for all
    gpu.synchronize()
    dist.barrier(group=group)  # it is complete on all ranks, so later events cannot fail it
    if not is_last:
        tensor = ones()
        work = dist.all_reduce(tensor, group=group, async_op=True)
        work.wait()
        dist.irecv(ones(), size - 1, group=group)
        group._get_backend(DEVICE).abort()
    dist.barrier()  # the others failed before the last one, whose loss could end them first (status 123)
    if is_last:
        group._get_backend(DEVICE).abort()
    gpu.synchronize()
    try:
        dist.all_reduce(ones(), group=group)
        print("no error", flush=True)
    except dist.DistBackendError as error:
        print("error:", error, flush=True)
    tensor, work = total()  # the other group continues
    work.wait()
    assert tensor.sum().item() == 20_000 * size
    dist.barrier()
    time.sleep(2)  # a rank that leaves at once may be missed by one still in the barrier
    os._exit(7)

if CASE == "again":
    for i in range(3):
        gpu.sleep(50)
        tensor, work = total()
        if i != 1:
            work.wait()
        strided = ones()[::2]
        dist.all_reduce(strided, async_op=True)
        dist.destroy_process_group()
        gpu.synchronize()
        assert tensor.sum().item() == 20_000 * size, tensor
        assert strided.sum().item() == 10_000 * size
        # Not on an unreserved port, where another program may listen.
        store = dist.FileStore(f"{tempfile.gettempdir()}/again-{pids[0]}-{i}", size)
        init(store=store, rank=rank, world_size=size)
    dist.destroy_process_group()
    sys.exit(0)
