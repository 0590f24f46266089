"""Children of a rank cannot use the group, and their exit does not disturb it."""

import multiprocessing
import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("mpi-gdr")
rank = dist.get_rank()
tensor = torch.ones(1000)
dist.all_reduce(tensor)
with open("/proc/self/maps") as maps:  # the kernel marks unlinked files
    shm = [line for line in maps if "/dev/shm/mpich_sh" in line]
named = [line for line in shm if "(deleted)" not in line]
print(f"shared memory: {'some' if shm else 'none'}, with a name: {len(named)}\n", end="", flush=True)
pending = None
if rank == 0:  # a pending operation and a busy thread during the forks
    pending = dist.irecv(torch.zeros(5), 1)

CALLS = {
    "all_reduce": lambda: dist.all_reduce(tensor),
    "isend": lambda: dist.isend(tensor, 1 - rank),
    "new_group": dist.new_group,
    "wait": lambda: pending.wait() if pending else dist.barrier(),
    "sequence": lambda: dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group(),
    "destroy": dist.destroy_process_group,
}


def in_child():
    for name, call in CALLS.items():
        try:
            call()
            print(f"{name}: no error\n", end="", flush=True)
        except (dist.DistBackendError, RuntimeError) as error:
            print(f"{name}: {error}\n", end="", flush=True)


class Ones(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.ones(10)


pid = os.fork()
if pid == 0:
    in_child()
    sys.exit(11)  # with all exit handlers
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 11
process = multiprocessing.get_context("fork").Process(target=in_child)
process.start()
process.join()
assert process.exitcode == 0
for batch in DataLoader(Ones(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
    dist.all_reduce(batch)
if rank == 1:
    dist.send(torch.ones(5), 0)
if pending:
    pending.wait()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
dist.all_reduce(tensor)
dist.destroy_process_group()
print(f"rank {rank} is done\n", end="", flush=True)
