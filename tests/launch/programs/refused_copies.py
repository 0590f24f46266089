"""Long messages and collectives by MPI between ranks for which the kernel refuses copies.

Argument, the reason: `filter`: a seccomp filter on all ranks, as in containers; `rank 1`: that rank is
non-dumpable, as a set-uid program; `none`: a cause outside of this program.
"""

import ctypes
import os
import struct
import sys

import torch
import torch.distributed as dist

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 4, 22, 38, 2
CAP_SYS_PTRACE = 19
NUMBERS = {"x86_64": (310, 311), "aarch64": (270, 271)}  # process_vm_readv, process_vm_writev
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    assert result == 0, os.strerror(ctypes.get_errno())


def forbid_copies() -> None:
    """Makes both system calls fail with EPERM."""
    load, equal, give = 0x20, 0x15, 0x06  # opcodes of the kernel's packet filters
    program = [(load, 0, 0, 0)]
    for number in NUMBERS[os.uname().machine]:
        program += [(equal, 0, 1, number), (give, 0, 0, 0x50001)]
    program.append((give, 0, 0, 0x7FFF0000))
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in program))

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("words", ctypes.c_void_p))

    whole = Filter(len(program), ctypes.cast(text, ctypes.c_void_p))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0))


def drop_right_to_trace() -> None:
    """Otherwise root could read non-dumpable processes."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    check(libc.capget(header, data))
    for word in (0, 1):  # effective, permitted
        data[word] &= ~(1 << CAP_SYS_PTRACE)
    check(libc.capset(header, data))


if sys.argv[1] == "filter":
    forbid_copies()
elif sys.argv[1] == "rank 1":
    drop_right_to_trace()
    if os.environ["RANK"] == "1":  # set by `import torch`
        check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))

dist.init_process_group("mpi-gdr")
rank, size = dist.get_rank(), dist.get_world_size()
for length in (100, 1_000_000):
    received = torch.empty(length)
    for work in (
        dist.isend(torch.full((length,), float(rank)), (rank + 1) % size),
        dist.irecv(received, (rank - 1) % size),
    ):
        work.wait()
    assert (received == (rank - 1) % size).all()
    summed = torch.full((length,), rank + 1.0)
    dist.all_reduce(summed)
    assert (summed == size * (size + 1) / 2).all()
dist.destroy_process_group()
print(f"rank {rank} of {size} is done\n", end="")
