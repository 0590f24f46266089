"""A job's start time: from the moment its last rank begins to the end of its first all_reduce.

torchrun --nproc-per-node N tools/start.py mpi-gdr|gloo
mpiexec -n N python tools/start.py mpi        # bare MPI, by mpi4py
"""

import sys
import time

import torch

torch.ones(1)
begin = time.time()
if sys.argv[1] == "mpi":
    import mpi4py

    mpi4py.rc.thread_level = "multiple"
    from mpi4py import MPI

    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, torch.ones(4).numpy())
    end = time.time()
    times = MPI.COMM_WORLD.allgather((begin, end))
    first = MPI.COMM_WORLD.rank == 0
else:
    import torch.distributed as dist

    dist.init_process_group(sys.argv[1])
    dist.all_reduce(torch.ones(4))
    end = time.time()
    times = [(0.0, 0.0)] * dist.get_world_size()
    dist.all_gather_object(times, (begin, end))
    first = dist.get_rank() == 0
    dist.destroy_process_group()
if first:
    seconds = max(t[1] for t in times) - max(t[0] for t in times)
    print(f"{sys.argv[1]}, {len(times)} ranks: {seconds:.3f} s", flush=True)
