"""One rank calls MPI_Abort while the other computes. Run apart, without a launcher."""

import ctypes
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("mpi-gdr")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    from mpi_backend.extension import _C

    library = ctypes.CDLL(_C.mpi_info()["library_path"])
    library.MPI_Abort(ctypes.c_int(0x44000000), ctypes.c_int(42))  # MPI_COMM_WORLD of the MPICH ABI
start = time.monotonic()
while time.monotonic() < start + 30:
    time.sleep(0.1)
print("not ended by MPI_Abort", flush=True)
sys.exit(0)
