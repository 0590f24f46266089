"""Ranks that end, or are ended, without a loss: ends.py CASE [ARGUMENT]."""

import ctypes
import datetime
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from calls import error_of


def orphan(folder):
    """Works without end and rewrites a file in each round."""
    dist.all_reduce(torch.ones(1))
    while True:  # independently: a rank that waited for the other would notice its end first
        (Path(folder) / f"ready{rank}").touch()
        time.sleep(0.02)


def deadlock(folder):
    """Ranks 0 and 1 wait for messages that the other never sends."""
    dist.barrier()
    work = dist.irecv(torch.empty(1), 1 - rank)
    (Path(folder) / f"ready{rank}").touch()
    work.wait()


def ignored_failure(what):
    """Rank 1 calls another collective ("called") or nothing ("left"); all ranks catch their errors and end as
    if they had succeeded."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    dist.all_reduce(torch.ones(5), group=group)
    try:
        if rank != 1:
            dist.all_reduce(torch.ones(1000), group=group)
        elif what == "called":
            dist.broadcast(torch.ones(10), 1, group=group)
            dist.barrier(group=group)
        else:
            time.sleep(8)
    except RuntimeError as error:
        print(f"rank {rank} caught: {error}", flush=True)


def ends_first(status):
    """Rank 0 catches an error of its own and ends long before rank 1, with this status."""
    group = dist.new_group()
    if rank == 0:
        work = group.recv([torch.empty(3)], 1, 0)  # no rank sends
        group._get_backend(torch.device("cpu")).abort()
        print("caught:", error_of(work.wait), flush=True)
    dist.destroy_process_group()
    if rank == 0:
        sys.exit(int(status))
    time.sleep(60 if int(status) else 3)
    print("rank 1 has saved its results", flush=True)


def mpi_abort():
    """Rank 1 calls MPI_Abort while the other computes. Run apart, without a launcher."""
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        from mpi_backend.extension import _C

        library = ctypes.CDLL(_C.mpi_info()["library_path"])
        library.MPI_Abort(ctypes.c_int(0x44000000), ctypes.c_int(42))  # MPI_COMM_WORLD of the MPICH ABI
    start = time.monotonic()
    while time.monotonic() < start + 30:
        time.sleep(0.1)
    print("not ended by MPI_Abort", flush=True)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
dist.init_process_group("mpi-gdr")
rank = dist.get_rank()
globals()[sys.argv[1]](*sys.argv[2:])
