"""One rank of a job on SPMD_DEVICE. On the last, a CUDA function fails in its FAKECUDA_FAILS_AT-th call.

Argument: that function. Ends with 0 if all results are right, with 7 after an error, which it prints.
"""

import datetime
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if RANK == SIZE - 1:
    os.environ["FAKECUDA_FAILS"] = sys.argv[1]  # before the device is loaded

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from support import gpu  # noqa: E402
from support.gpu import DEVICE  # noqa: E402

COUNT = 20_000


def expect(tensor, value):
    assert (tensor.cpu() == value).all(), f"wrong result: {tensor.cpu()[:5]}, expected {value}"


def collectives():
    ones = torch.ones(COUNT, device=DEVICE)
    total = ones.clone()
    dist.all_reduce(total)
    expect(total, SIZE)
    whole = torch.zeros(SIZE * COUNT, device=DEVICE)
    dist.all_gather_single(whole, ones)
    expect(whole, 1)
    part = torch.zeros(COUNT, device=DEVICE)
    dist.reduce_scatter_single(part, whole)
    expect(part, SIZE)
    exchanged = torch.zeros(SIZE * COUNT, device=DEVICE)
    dist.all_to_all_single(exchanged, whole)
    expect(exchanged, 1)
    dist.broadcast(part.fill_(RANK), SIZE - 1)
    expect(part, SIZE - 1)


def message():
    tensor = torch.full((COUNT,), RANK, device=DEVICE)
    if RANK == 0:
        dist.send(tensor, SIZE - 1)
    elif RANK == SIZE - 1:
        dist.recv(tensor, 0)
        expect(tensor, 0)


try:
    dist.init_process_group(gpu.BACKEND, timeout=datetime.timedelta(seconds=30))
    for _ in range(3):
        collectives()
        message()
    dist.destroy_process_group()
except Exception as error:  # also errors of torch's operators
    print(f"error: {str(error).splitlines()[0]}", flush=True)
    os._exit(7)
