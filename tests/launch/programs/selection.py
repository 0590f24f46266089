"""Algorithms of groups under the caller's variables, and groups whose ranks differ. Run apart on two ranks;
prints a line per question."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import mpi_backend

rank = int(os.environ["RANK"])


def message_of_call(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def group_with(selection):
    options = mpi_backend.Options()
    options.selection = selection
    return dist.new_group(pg_options=options)


def backend_of(group):
    return group._get_backend(torch.device("cpu"))


if "DIFFERENT" in os.environ:
    variable, *values = os.environ.pop("DIFFERENT").split("|")
    os.environ[variable] = values[rank]
    print("different:", message_of_call(lambda: dist.init_process_group("mpi-gdr")))
    sys.exit(0)

dist.init_process_group("mpi-gdr")
world = backend_of(dist.group.WORLD)
print("reach:", world.reach)
for bytes_ in (64, 4096, 65536):
    print(f"all_reduce {bytes_}:", world.algorithm("all_reduce", bytes_ // 4, "float32"))
print("scatter:", *(world.algorithm("scatter", count, "uint8") for count in (1023, 1024)))
calls = ((8, "float32"), (1 << 20, "uint8"))
print("broadcast:", *(world.algorithm("broadcast", *call) for call in calls))
print("sum of bfloat16:", world.algorithm("all_reduce", 16, "bfloat16"))
print("typo:", message_of_call(lambda: world.algorithm("all_redcue", 4)))
print("no such sum:", message_of_call(lambda: world.algorithm("all_reduce", 4, "bool", "avg")))
for count in (16, 1024, 16384):
    tensor = torch.full((count,), rank + 1.0)
    dist.all_reduce(tensor)
    print("right:", bool((tensor == 3).all()))

# Rows fall through if the library lacks the operation: no MPI adds bfloat16.
native = group_with("allreduce:0-4k:native:order=library#barrier:native")
names = ("float32", "bfloat16")
print("native:", *(backend_of(native).algorithm("all_reduce", 64, name) for name in names))
for dtype in (torch.float32, torch.bfloat16):
    tensor = torch.full((64,), rank + 1, dtype=dtype)
    dist.all_reduce(tensor, group=native)
    print("right:", bool((tensor == 3).all()))
dist.barrier(native)
print("copied:", backend_of(native).options.selection == "allreduce:0-4k:native:order=library#barrier:native")

print("bad rows:", message_of_call(lambda: group_with("all_reduce:0-4k:native")))
print("differ:", message_of_call(lambda: group_with(("barrier:native", "barrier:dissemination")[rank])))

# Each group reads the file.
file = Path(os.environ["MPI_GDR_TUNING"])
rows = file.read_text()
if rank == 0:
    file.write_text("# a typo\nbarrier dissemi\n")
dist.barrier()
print("bad file:", message_of_call(dist.new_group))
dist.barrier()
if rank == 0:
    file.write_text(rows)
dist.barrier()
print("good file:", message_of_call(dist.new_group))

tensor = torch.ones(3)
dist.all_reduce(tensor)
print("others:", tensor.tolist())
dist.destroy_process_group()
print("destroyed:", message_of_call(lambda: world.algorithm("all_reduce", 4)))
