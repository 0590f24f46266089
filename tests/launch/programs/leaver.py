"""Ranks 2 and above leave one after the other, in different ways, while ranks 0 and 1 wait for them.

Each leaver has a group with ranks 0 and 1, which print the error and its delay, and show that groups without
the lost rank continue. Run apart: no launcher ends the remaining ranks.
"""

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

WAYS = {2: "exit", 3: "raise", 4: "kill", 5: "stop"}
dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
rest = dist.new_group([0, 1])
groups = {leaver: dist.new_group([0, 1, leaver]) for leaver in WAYS}
tensor = torch.ones(1 << 16)
dist.all_reduce(tensor)
store.set(f"pid{rank}", str(os.getpid()))


def leave():
    store.wait([f"turn of {rank}"])
    group = groups[rank]
    dist.all_reduce(tensor, group=group)
    if rank == 2:
        sys.exit(3)
    if rank == 3:
        raise ArithmeticError("this rank fails")
    if rank == 4:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:  # killed during a collective
            dist.all_reduce(tensor, group=group)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3)
    report_error("stop, itself", lambda: dist.all_reduce(tensor, group=group))
    sys.exit(0)


def report_error(what, function):
    start = time.monotonic()
    try:
        function()
        print(f"{what}: no error", flush=True)
    except dist.DistBackendError as error:
        print(f"{what}: after {time.monotonic() - start:.1f} s: {error}", flush=True)


def lose(leaver, group):
    while True:
        if leaver == 3:
            dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()
        elif leaver == 2 and rank == 0:
            dist.all_reduce(tensor, group=group)
            dist.recv(tensor, leaver, group=group)
        else:
            dist.all_reduce(tensor, group=group)


if rank in WAYS:
    leave()
for leaver, way in WAYS.items():
    if rank == 0:
        store.set(f"turn of {leaver}", "")
    report_error(way, lambda: lose(leaver, groups[leaver]))  # noqa: B023
    report_error(f"{way}, again", lambda: dist.all_reduce(tensor, group=groups[leaver]))  # noqa: B023
    total = torch.ones(3)
    report_error(f"{way}, rest", lambda: dist.all_reduce(total, group=rest))  # noqa: B023
    assert (total == 2).all()
report_error("new group", lambda: dist.new_group(list(range(5))))
pid = int(store.get("pid5"))
dist.barrier(group=rest)
if rank == 0:
    os.kill(pid, signal.SIGCONT)
time.sleep(4)
sys.exit(5)
