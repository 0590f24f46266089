"""mpi4py in the same process: `first LEVEL` (mpi4py initialises MPI), `finalises LEVEL` (and finalises it),
`second` (we initialise it)."""

import sys
import time

import mpi4py
import torch
import torch.distributed as dist

if sys.argv[1] != "second":
    mpi4py.rc.thread_level = sys.argv[2]
    from mpi4py import MPI

dist.init_process_group("mpi-gdr")

import mpi_backend  # noqa: E402

comm = mpi_backend.mpi4py_comm()
rank, size = dist.get_rank(), dist.get_world_size()
assert (comm.Get_rank(), comm.Get_size()) == (rank, size)
assert comm.Get_name() == "mpi-gdr group 0", comm.Get_name()  # as shown by profilers
tensor = torch.arange(100.0) + rank
theirs = torch.empty_like(tensor)
comm.Allreduce(tensor.numpy(), theirs.numpy())
work = dist.all_reduce(tensor, async_op=True)
assert comm.allreduce(rank) == sum(range(size))  # both concurrently
work.wait()
assert torch.equal(tensor, theirs)
group = dist.new_group([size - 1])
if rank == size - 1:
    alone = mpi_backend.mpi4py_comm(group)
    assert alone.Get_size() == 1 and alone.Get_name() not in ("", comm.Get_name()), alone.Get_name()
dist.destroy_process_group()
if sys.argv[1] != "second":
    assert not MPI.Is_finalized()
    MPI.COMM_WORLD.Barrier()  # MPI still belongs to mpi4py
if sys.argv[1] == "finalises":
    MPI.Finalize()
    time.sleep(0.5)
print("summed with both\n", end="")
