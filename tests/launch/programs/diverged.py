"""Three ranks with a flight log. Run apart: no launcher ends the ranks that wait for a diverged one.

argv: a folder for their progress, and what happens after the calls of a healthy job:
skipped   rank 2 omits a call, waits for the others' errors, then dumps its log; before that, all ranks dump
their logs into the folder "healthy" beside
other     rank 1 makes another call
silent    rank 0 never receives rank 1's second message: it dumps its log when rank 1 fails, to a file
"late_dump", and again on a signal
"""

import datetime
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import mpi_backend

progress, case = Path(sys.argv[1]), sys.argv[2]
dist.init_process_group("mpi-gdr", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(timeout=datetime.timedelta(seconds=3), group_desc="the unlucky")


def mark(what):
    (progress / f"{what}{rank}").touch()


def wait_for(what, count):
    deadline = time.monotonic() + 60
    while len(list(progress.glob(f"{what}*"))) < count and time.monotonic() < deadline:
        time.sleep(0.05)


# A healthy job: every kind of call, uneven ones, messages, two groups.
tensor = torch.ones(3, 5)
dist.all_reduce(tensor, group=group)
dist.broadcast(tensor, 0)
dist.reduce(tensor, 1)
dist.all_gather([torch.empty(3, 5) for _ in range(size)], tensor, group=group)
dist.all_gather_into_tensor(torch.empty(3 * size, 5), tensor)
dist.reduce_scatter_tensor(torch.empty(5), torch.ones(5 * size))
dist.all_to_all_single(torch.empty(size), torch.ones(size))
splits_in, splits_out = [rank + 1] * size, list(range(1, size + 1))
dist.all_to_all_single(torch.empty(sum(splits_out)), torch.ones(sum(splits_in)), splits_out, splits_in)
send = dist.P2POp(dist.isend, torch.ones(7), (rank + 1) % size)
receive = dist.P2POp(dist.irecv, torch.empty(7), (rank - 1) % size)
for work in dist.batch_isend_irecv([send, receive]):
    work.wait()
with dist._coalescing_manager(async_ops=True) as coalesced:
    for _ in range(3):
        dist.all_reduce(torch.ones(2, 2))
coalesced.wait()
dist.barrier()
if case == "skipped":
    mpi_backend.dump_flight_log(progress.parent / "healthy" / f"mpi_gdr_trace_rank_{rank}")

try:
    if case == "skipped":
        if rank == 2:
            wait_for("failed", 2)
        else:
            dist.all_reduce(tensor, group=group)
    elif case == "other":
        if rank == 1:
            dist.barrier(group=group)
        else:
            dist.all_reduce(tensor, group=group)
    elif case == "silent":
        if rank == 0:
            dist.recv(torch.empty(4), 1, group=group, tag=5)
            wait_for("mpi_gdr_trace_rank_0", 1)  # written because of rank 1's failure
            (progress / "mpi_gdr_trace_rank_0").rename(progress / "late_dump")
            os.kill(os.getpid(), signal.SIGUSR2)
            wait_for("mpi_gdr_trace_rank_0", 1)
        elif rank == 1:
            dist.send(torch.ones(4), 0, group=group, tag=5)
            # Exceeds what MPI sends without a receiver.
            dist.send(torch.ones(1 << 22), 0, group=group, tag=5)
        else:
            wait_for("mpi_gdr_trace_rank_0", 1)
    print("no error")
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")
    mark("failed")
if (case, rank) in (("skipped", 2), ("silent", 2)):
    print("dumped:", mpi_backend.dump_flight_log())
sys.stdout.flush()
mark("done")
wait_for("done", size)
# Simultaneously: a rank that saw another one end would write a second log about it.
time.sleep(max(0, max(f.stat().st_mtime for f in progress.glob("done*")) + 1 - time.time()))
os._exit(0)
